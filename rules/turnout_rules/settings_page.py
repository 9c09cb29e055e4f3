"""The tables of `docs/settings.md`, written from the tables that settings are read by.

`python -m turnout_rules.settings_page docs/settings.md` writes them into the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from turnout_rules.settings import DEFAULT_INTERCEPT
from turnout_rules.settings_loading import SECTIONS

_SECTION = re.compile(r"(?m)^## (?P<name>\w+)\n\n(?:\|.*\n)+")


def settings_table(section: str) -> str:
    """The Markdown table of one section."""
    keys, struct = SECTIONS[section]
    defaults = struct()
    rows = ["| key | default | meaning | counts |", "|---|---|---|---|"]
    for name, key in keys.items():
        default = _shown(getattr(defaults, name))
        rows.append(f"| `{name}` | {default} | {key.about} | {key.takes_effect} |")
    return "\n".join(rows) + "\n"


def with_tables(page: str) -> str:
    """`page` with the table under each section's heading written anew."""

    def written(found: re.Match[str]) -> str:
        name = found["name"]
        return f"## {name}\n\n{settings_table(name)}" if name in SECTIONS else found[0]

    return _SECTION.sub(written, page)


def _shown(value: object) -> str:
    if value == DEFAULT_INTERCEPT:
        return "the known providers"
    if value in ("", None, ()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
