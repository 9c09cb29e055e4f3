"""Printing tables so that every cell can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_table(table: Table, *, width: int) -> None:
    """Print `table` at least `width` wide: in a pipe or a narrow window lines wrap, cells stay."""
    from rich.console import Console

    room = Console().width
    Console(width=max(room, width), highlight=False, soft_wrap=True).print(table)
