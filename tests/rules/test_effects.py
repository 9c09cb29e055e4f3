"""When a saved setting counts, and that the settings page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout_rules.effects import effects_of
from turnout_rules.kinds import AFTER_RESTART, AT_ENGINE_START, AT_SAVE
from turnout_rules.settings import Engines, Proxy, Settings, Sidecar
from turnout_rules.settings_loading import SECTIONS
from turnout_rules.settings_page import settings_table, with_tables

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_written_from_the_tables() -> None:
    page = PAGE.read_text("utf-8")
    assert with_tables(page) == page, "run: python -m turnout_rules.settings_page docs/settings.md"
    assert all(settings_table(section) in page for section in SECTIONS)


def test_every_key_says_when_it_counts() -> None:
    times = {key.takes_effect for keys, _ in SECTIONS.values() for key in keys.values()}
    assert times == {AT_SAVE, AT_ENGINE_START, AFTER_RESTART}


def test_what_waits_for_a_restart_stays_and_all_else_changes() -> None:
    began = Settings(sidecar=Sidecar(port=1, keepalive_s=2.0))
    saved = Settings(
        proxy=Proxy(port=5, keep_flows=6),
        sidecar=Sidecar(port=7, socket="s", keepalive_s=8.0),
        engines=Engines(router_cores=9, ttl_s=10.0),
        observe=True,
    )
    effects = effects_of(saved, began=began)
    assert effects.settings.sidecar == Sidecar(port=1, keepalive_s=8.0)
    assert effects.settings.proxy == Proxy(keep_flows=6)
    assert effects.settings.engines == saved.engines
    assert effects.settings.observe
    assert effects.after_restart == ("proxy.port", "sidecar.port", "sidecar.socket")
    assert effects.at_engine_start == ("engines.router_cores",)


@pytest.mark.parametrize("began", [Settings(), Settings(sidecar=Sidecar(port=1))])
def test_a_save_that_changes_nothing_says_nothing(began: Settings) -> None:
    effects = effects_of(began, began=began)
    assert effects.settings == began
    assert not effects.sentences(tuple(SECTIONS))
