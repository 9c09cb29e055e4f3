"""The kinds of value a key may hold: how each is read from YAML and how JSON Schema names it.

Tables of `Key` describe every mapping of the rule files once; loading, the editor's schema and the
"did you mean" of unknown keys all come from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from yaml.nodes import MappingNode, Node, ScalarNode

from turnout_rules.document import INVALID, Document


class Kind(Protocol):
    """One kind of value."""

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """The value, or INVALID with its problem recorded."""

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""


AT_SAVE = "at the save"
AT_ENGINE_START = "at an engine's next start"
AFTER_RESTART = "after a restart"


class Key(NamedTuple):
    """One key of a mapping."""

    kind: Kind
    about: str
    is_required: bool = False
    takes_effect: str = AT_SAVE
    """When a changed value counts in a process that runs."""


class Values(NamedTuple):
    """A mapping that was read: valid values by key, and the nodes of all known keys."""

    values: dict[str, Any]
    nodes: dict[str, Node]


def read_mapping(doc: Document, node: Node, what: str, keys: Mapping[str, Key]) -> Values:
    """Read a mapping by its table of keys; whatever is wrong is recorded in `doc`."""
    values: dict[str, Any] = {}
    nodes: dict[str, Node] = {}
    for name, (_, value_node) in doc.fields(node, what, keys).items():
        nodes[name] = value_node
        value = keys[name].kind.read(doc, value_node, f"`{name}`")
        if value is not INVALID:
            values[name] = value
    if isinstance(node, MappingNode):
        for name, key in keys.items():
            if key.is_required and name not in nodes:
                doc.error(node, "missing-key", f"`{name}` is missing in {what}", key.about)
    return Values(values, nodes)


def described(key: Key) -> str:
    """What the key is for, and when it counts if that is not at once."""
    return key.about if key.takes_effect == AT_SAVE else f"{key.about}; counts {key.takes_effect}"


def mapping_schema(keys: Mapping[str, Key]) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys and no others."""
    properties = {
        name: key.kind.schema() | {"description": described(key)} for name, key in keys.items()
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required := [name for name, key in keys.items() if key.is_required]:
        schema["required"] = required
    return schema


@dataclass(frozen=True)
class Text:
    """A text; `pattern` must fit all of it, `remedy` says what fits."""

    pattern: re.Pattern[str] | None = None
    remedy: str = ""

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """The text as written."""
        value = doc.text(node, what)
        if isinstance(value, str) and self.pattern and not self.pattern.fullmatch(value):
            return doc.error(node, "bad-value", f"{what} cannot be `{value[:80]}`", self.remedy)
        return value

    def schema(self) -> dict[str, Any]:
        """Any scalar: an unquoted number or boolean is a text too."""
        if self.pattern:
            return {"type": ["string", "number"], "pattern": f"^(?:{self.pattern.pattern})$"}
        return {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True)
class Texts:
    """A list of texts, or one alone; `check` looks at each, and may record a problem."""

    check: Callable[[Document, Node, str, str], bool] | None = None
    choices: tuple[str, ...] = ()

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """All valid entries."""
        found = []
        for value, item in doc.texts(node, what):
            if self.choices and value not in self.choices:
                doc.unknown(item, f"entry in {what}", value, self.choices, "unknown-value")
            elif self.check is None or self.check(doc, item, value, what):
                found.append(value)
        return tuple(found)

    def schema(self) -> dict[str, Any]:
        """A scalar or a list of scalars."""
        one: dict[str, Any] = {"type": ["string", "number", "boolean"]}
        if self.choices:
            one = {"enum": list(self.choices)}
        return {"anyOf": [one, {"type": "array", "items": one}]}


@dataclass(frozen=True)
class Choice:
    """One of a few names."""

    names: tuple[str, ...]
    aliases: Mapping[str, str] | None = None

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """The name."""
        value = doc.text(node, what)
        if isinstance(value, str):
            value = (self.aliases or {}).get(value, value)
            if value not in self.names:
                return doc.unknown(node, f"value of {what}", value, self.names, "unknown-value")
        return value

    def schema(self) -> dict[str, Any]:
        """An enum."""
        return {"enum": [*self.names, *(self.aliases or {})]}


@dataclass(frozen=True)
class Integer:
    """A whole number in a range."""

    least: int
    most: int

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """The number."""
        return doc.integer(node, what, self.least, self.most)

    def schema(self) -> dict[str, Any]:
        """An integer with its bounds."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Number:
    """A number in a range."""

    least: float
    most: float

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """The number."""
        return doc.number(node, what, self.least, self.most)

    def schema(self) -> dict[str, Any]:
        """A number with its bounds."""
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """The flag."""
        return doc.flag(node, what)

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class TextMap:
    """Names to texts; `check` looks at each pair (name node, value node, name, value)."""

    check: Callable[[Document, Node, Node, str, str], bool] | None = None
    is_lower: bool = False

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """All valid pairs."""
        found = {}
        for name, (key, value_node) in doc.fields(node, what).items():
            value = doc.text(value_node, f"`{name}` in {what}")
            if not isinstance(value, str):
                continue
            if self.check is None or self.check(doc, key, value_node, name, value):
                found[name.lower() if self.is_lower else name] = value
        return found

    def schema(self) -> dict[str, Any]:
        """A mapping of scalars."""
        one = {"type": ["string", "number", "boolean"]}
        return {"type": "object", "additionalProperties": one}


@dataclass(frozen=True)
class JsonMap:
    """A mapping whose values may be anything JSON can say; some names may be refused."""

    refused: Mapping[str, str] | None = None

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """The mapping."""
        found = {}
        for name, (key, value_node) in doc.fields(node, what).items():
            if self.refused and name in self.refused:
                doc.error(key, "refused-field", f"{what} cannot hold `{name}`", self.refused[name])
                continue
            value = doc.json(value_node, f"`{name}` in {what}")
            if value is not INVALID:
                found[name] = value
        return found

    def schema(self) -> dict[str, Any]:
        """Any mapping but the refused names."""
        schema: dict[str, Any] = {"type": "object"}
        if self.refused:
            schema["propertyNames"] = {"not": {"enum": sorted(self.refused)}}
        return schema


@dataclass(frozen=True)
class Table:
    """A nested mapping with its own table of keys, made into `build(**values)`."""

    keys: Mapping[str, Key]
    build: Callable[..., Any]

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """The built value."""
        if not isinstance(node, MappingNode):
            return doc.wrong_type(node, what, "a mapping (`key: value`)")
        return self.build(**read_mapping(doc, node, what, self.keys).values)

    def schema(self) -> dict[str, Any]:
        """The nested mapping's schema."""
        return mapping_schema(self.keys)


@dataclass(frozen=True)
class Special:
    """A kind with a reader of its own."""

    reader: Callable[[Document, Node, str], Any]
    json_schema: Mapping[str, Any]

    def read(self, doc: Document, node: Node, what: str) -> Any:
        """What the reader makes of it."""
        return self.reader(doc, node, what)

    def schema(self) -> dict[str, Any]:
        """As given."""
        return dict(self.json_schema)


def is_scalar(node: Node) -> bool:
    """Whether the node is one text, number or boolean."""
    return isinstance(node, ScalarNode)
