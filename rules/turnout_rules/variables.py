"""`${NAME}` in a value of a rule file: another variable's value, put in where it is used.

`${NAME:-text}` has a text for a variable that is unset or empty; `$${` stands for `${` itself. A
`$` without a brace means nothing. The notation is Compose's. Pure: the environment is passed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(
    r"\$(?P<literal>\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]{0,127})(?::-(?P<other>[^{}]*))?\}|\$\{"
)
_SECRET_PARTS = frozenset(
    {"APIKEY", "AUTH", "COOKIE", "CREDENTIAL", "CREDENTIALS", "KEY", "KEYS"}
    | {"PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "SECRETS", "TOKEN"}
)


class UnsetVariable(Exception):
    """A value names a variable that is not set; the message is its name."""


def has_broken_reference(value: str) -> bool:
    """Whether some `${` in `value` begins no reference."""
    return any(not found["literal"] and not found["name"] for found in _REFERENCE.finditer(value))


def has_reference(value: str) -> bool:
    """Whether `value` takes anything from a variable."""
    return any(found["name"] for found in _REFERENCE.finditer(value))


def names_in(value: str) -> tuple[str, ...]:
    """The variables that `value` cannot do without."""
    found = _REFERENCE.finditer(value)
    return tuple(one["name"] for one in found if one["name"] and one["other"] is None)


def expand(value: str, environ: Mapping[str, str]) -> str:
    """`value` with its references filled in; raises `UnsetVariable`."""

    def filled(found: re.Match[str]) -> str:
        name, other = found["name"], found["other"]
        if name is None:
            return found["literal"] or found[0]
        if other is not None:
            return environ.get(name) or other
        if name not in environ:
            raise UnsetVariable(name)
        return environ[name]

    return _REFERENCE.sub(filled, value)


def is_secret(name: str) -> bool:
    """Whether a variable's name says that it holds a key, a token or a password."""
    return not _SECRET_PARTS.isdisjoint(name.upper().split("_"))
