"""The crash that Turnout exists for, replayed: three models that together outgrow the memory, and
eight requests at once. The scale is 1:10; the processes, the queue and the deaths are real."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from engine_kit import MIB, chat, fake_model, quick_settings, running, target_of, upstream_of

BUDGET = 1_200 * MIB
HOLDING = ("starting", "ready", "draining", "stopping")


async def test_three_models_and_eight_requests_kill_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnout_sidecar")
    models = []
    for name, mib in (("main", 700), ("tool", 400), ("classifier", 300)):
        weights = tmp_path / f"{name}.bin"
        with weights.open("wb") as file:
            file.truncate(mib * MIB)
        # More than two requests at once are out of memory, as eight were on the card.
        models.append(
            fake_model(name, "--die-over", "2", "--token-s", "0.02", model_path=str(weights))
        )
    local = upstream_of(*models)
    settings = quick_settings(ram_budget_bytes=BUDGET)
    async with running(tmp_path, local, settings=settings) as backends:
        names = ["main", "tool", "classifier"]
        requests = [
            asyncio.create_task(
                chat(backends, target_of(local, names[i % 3]), client=str(i), timeout_s=60)
            )
            for i in range(24)
        ]
        most = 0
        while not all(request.done() for request in requests):
            held = sum(s.need_bytes for s in backends.status() if s.state in HOLDING)
            most = max(most, held)
            await asyncio.sleep(0.01)
        assert len([await request for request in requests]) == 24
        assert 0 < most <= BUDGET
        assert sum(s.crashes for s in backends.status()) == 0
    assert "waiting" in caplog.text
    assert "stops" in caplog.text or "drains to make room for" in caplog.text
