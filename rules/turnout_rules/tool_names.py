"""Names for tools that become plain functions, and the way back from a name to its tool.

Nothing is stored: the names follow from the tools that a request declares and calls, so each
request of a conversation brings its own. Two tools never share a name, and no name is longer than
the APIs allow.
"""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

MAX_NAME_CHARS = 64
"""OpenAI's limit for function names (`FunctionDefinition` of openai-python)."""
_ALLOWED = frozenset(string.ascii_letters + string.digits + "_-")
_JOINT = "__"
_HASH_CHARS = 10

Address = tuple[str, str]
"""The namespace (empty: none) and the name by which a target knows a tool."""


class Tool(msgspec.Struct, frozen=True):
    """A tool as the client knows it."""

    kind: Literal["function", "custom", "search"]
    namespace: str
    name: str


class Calls:
    """The tools of one request under the names that the target knows."""

    __slots__ = ("_addresses", "_originals", "folds_custom")

    def __init__(
        self, tools: Iterable[Tool], *, folds_namespaces: bool, folds_custom: bool
    ) -> None:
        """Name `tools`; duplicates are one tool."""
        self.folds_custom = folds_custom
        unique = tuple(dict.fromkeys(tools))
        wanted = {
            tool: (("", _joined(tool)) if folds_namespaces else (tool.namespace, tool.name))
            for tool in unique
        }
        # A function that needs no folding keeps its name before anything else gets one.
        kept = {tool for tool in unique if tool.kind == "function" and wanted[tool] == _own(tool)}
        taken = {wanted[tool] for tool in kept}
        wishes = Counter(wanted[tool] for tool in unique if tool not in kept)
        self._addresses: dict[Tool, Address] = {}
        for tool in unique:
            address = wanted[tool]
            if tool not in kept:
                if wishes[address] > 1 or address in taken or not _is_valid(address[1]):
                    address = _distinct(tool, address, taken)
                taken.add(address)
            self._addresses[tool] = address
        self._originals = {
            address: tool
            for tool, address in self._addresses.items()
            if address != _own(tool)
            or tool.kind == "search"
            or (folds_custom and tool.kind == "custom")
        }
        self._add_other_names(unique, taken)

    def address(self, tool: Tool) -> Address:
        """Where the target finds `tool`; raises KeyError for one that was not given."""
        return self._addresses[tool]

    def original(self, namespace: str, name: str) -> Tool | None:
        """The tool behind a call of the target's model; None: the call needs no turning back."""
        return self._originals.get((namespace, name))

    def find(self, kind: str, namespace: str, name: str) -> Tool | None:
        """The tool that the client means; without a namespace, the only one of that name."""
        found = [
            tool
            for tool in self._addresses
            if tool.kind == kind and tool.name == name and namespace in ("", tool.namespace)
        ]
        exact = [tool for tool in found if tool.namespace == namespace]
        return next(iter(exact or found), None)

    def in_namespace(self, namespace: str) -> list[Tool]:
        """All tools of a namespace, in their order."""
        return [tool for tool in self._addresses if tool.namespace == namespace]

    def _add_other_names(self, tools: Iterable[Tool], taken: set[Address]) -> None:
        """Models also call a tool as its prompt speaks of it: `exec`, `functions.exec`."""
        names = Counter(("", tool.name) for tool in tools)
        for address, tool in list(self._originals.items()):
            if address[0] or not tool.namespace:
                continue
            for other in (("", tool.name), ("", f"{tool.namespace}.{tool.name}")):
                if other not in taken and names[other] <= 1:
                    self._originals.setdefault(other, tool)


def _own(tool: Tool) -> Address:
    return tool.namespace, tool.name


def _joined(tool: Tool) -> str:
    return f"{tool.namespace}{_JOINT}{tool.name}" if tool.namespace else tool.name


def _is_valid(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME_CHARS and _ALLOWED.issuperset(name)


def _distinct(tool: Tool, address: Address, taken: set[Address]) -> Address:
    """The wanted name cut and marked with a digest of what the tool is."""
    namespace, name = address
    room = MAX_NAME_CHARS - _HASH_CHARS - 1
    stem = "".join(c if c in _ALLOWED else "_" for c in name[:room])
    salt = 0
    while True:
        identity = "\0".join((tool.kind, tool.namespace, tool.name, str(salt)))
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
        found = (namespace, f"{stem}_{digest[:_HASH_CHARS]}")
        if found not in taken:
            return found
        salt += 1
