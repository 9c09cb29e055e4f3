"""Printing tables and texts of strangers so that they can be read, and do nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_table(table: Table, *, width: int) -> None:
    """Print `table` at least `width` wide: in a pipe or a narrow window lines wrap, cells stay."""
    from rich.console import Console

    room = Console().width
    Console(width=max(room, width), highlight=False, soft_wrap=True).print(table)


def visible(text: str, width: int = 60) -> str:
    """`text` in one line of at most `width` characters.

    Control characters, terminals' and those that turn the writing round, become spaces.
    """
    plain = "".join(char if char.isprintable() else " " for char in text)
    return plain if len(plain) <= width else plain[: width - 1] + "…"
