"""Names that clients and targets bring along, made fit for people: in logs, headers, messages.

They may be in any script; control characters and line breaks must not be in them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NAME_CHARS = 64
"""Longer than any name a rule file may give."""
_NEAR_AMONG = 2_000
_NEAR_CUTOFF = 0.6  # difflib's own default
_NEAR_SHOWN = 3
_NAMES_SHOWN = 24


def printable(text: str) -> str:
    """`text` with a `?` in place of everything that is no visible character or plain space."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def shown(name: str) -> str:
    """A client's name for a message: one line, of bounded length."""
    return printable(name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + "…")


def nearest_first(name: str, known: Iterable[str]) -> tuple[list[str], list[str]]:
    """What `name` may have meant, and the others, each in the order of `known`."""
    names = list(known)
    lower = {each.lower(): each for each in names[:_NEAR_AMONG]}
    wanted = name[:_NAME_CHARS].lower()
    found = difflib.get_close_matches(wanted, lower, n=_NEAR_SHOWN, cutoff=_NEAR_CUTOFF)
    near = [lower[each] for each in found]
    return near, [each for each in names if each not in near]


def no_route_called(name: str, known: Iterable[str]) -> str:
    """What is said to a client that names a route which is not there."""
    near, others = nearest_first(name, known)
    names = [f"`{each}`" for each in (*near, *others)]
    listed = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    meant = f"; did you mean {' or '.join(names[: len(near)])}?" if near else "."
    return f"No route is called `{shown(name)}`{meant} Routes: {listed or 'none'}."
