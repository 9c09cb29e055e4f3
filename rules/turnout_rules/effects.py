"""When a saved setting counts: most at once, some at an engine's next start, few after a restart.

The tables of `settings_loading` say which; the processes ask here what of a save they must leave as
it was, and the settings page and the JSON Schema tell people. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from turnout_rules.kinds import AFTER_RESTART, AT_ENGINE_START, Key
from turnout_rules.settings import Settings
from turnout_rules.settings_loading import SECTIONS


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """One save, seen from a running process."""

    settings: Settings
    """What is in force now: the save, but for what waits for a restart."""
    after_restart: tuple[str, ...] = ()
    """`section.key`, for each whose saved value is not the one that this process began with."""
    at_engine_start: tuple[str, ...] = ()

    def sentences(self, sections: Collection[str]) -> list[str]:
        """What to tell people about the keys of `sections`; empty: everything counts already."""
        said = []
        for keys, when in (
            (self.after_restart, "after a restart of Turnout"),
            (self.at_engine_start, "from each engine's next start"),
        ):
            if mine := [key for key in keys if key.partition(".")[0] in sections]:
                said.append(f"saved, and counts {when}: {', '.join(mine)}")
        return said


def effects_of(saved: Settings, *, began: Settings) -> Effects:
    """What `saved` means to a process that began with `began`."""
    kept: dict[str, Any] = {}
    waiting, engines = [], []
    for section, name, key in _rows():
        before, now = (getattr(getattr(s, section), name) for s in (began, saved))
        if before == now:
            continue
        if key.takes_effect == AFTER_RESTART:
            waiting.append(f"{section}.{name}")
            part = kept.get(section, getattr(saved, section))
            kept[section] = msgspec.structs.replace(part, **{name: before})
        elif key.takes_effect == AT_ENGINE_START:
            engines.append(f"{section}.{name}")
    return Effects(
        settings=msgspec.structs.replace(saved, **kept),
        after_restart=tuple(waiting),
        at_engine_start=tuple(engines),
    )


def _rows() -> Iterator[tuple[str, str, Key]]:
    for section, (keys, _) in SECTIONS.items():
        for name, key in keys.items():
            yield section, name, key
