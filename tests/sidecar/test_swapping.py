"""Models that do not fit together: what stops, who waits, and that nobody loses or starves."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from engine_kit import (
    MIB,
    chat,
    fake_model,
    lines,
    quick_settings,
    refusal,
    running,
    status_of,
    target_of,
    until,
    upstream_of,
)


def weights(folder: Path, name: str, mib: int) -> str:
    """A model file of a given size that takes no space."""
    path = folder / f"{name}.bin"
    with path.open("wb") as file:
        file.truncate(mib * MIB)
    return str(path)


async def test_alternating_requests_for_two_models_are_collated_and_none_is_lost(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "journal"
    models = [
        fake_model(name, journal=journal, model_path=weights(tmp_path, name, 300))
        for name in ("a", "b")
    ]
    local = upstream_of(*models)
    settings = quick_settings(ram_budget_bytes=500 * MIB)
    async with running(tmp_path, local, settings=settings) as backends:
        room = asyncio.Semaphore(16)
        over: list[int] = []

        async def one(i: int) -> str:
            async with room:
                name = "ab"[i % 2]
                text = await chat(backends, target_of(local, name), client=str(i % 5))
                over.append(sum(s.state == "ready" for s in backends.status()))
                return text

        answers = await asyncio.gather(*(one(i) for i in range(200)))
        assert len(answers) == 200
        assert max(over) == 1, "both models were loaded at once"
        assert len(lines(journal, "served")) == 200
        assert len(lines(journal, "start")) <= 30


async def test_a_busy_model_gives_way_after_its_turn(tmp_path: Path) -> None:
    models = [
        fake_model(n, "--token-s", "0.05", model_path=weights(tmp_path, n, 300)) for n in "ab"
    ]
    local = upstream_of(*models)
    settings = quick_settings(ram_budget_bytes=500 * MIB)
    async with running(tmp_path, local, settings=settings) as backends:
        busy = True

        async def keep_busy() -> None:
            while busy:
                await chat(backends, target_of(local, "a"))

        crowd = [asyncio.create_task(keep_busy()) for _ in range(4)]
        await until(lambda: status_of(backends, "local/a").state == "ready")
        began = time.monotonic()
        assert await chat(backends, target_of(local, "b"), client="other")
        assert time.monotonic() - began < 8
        busy = False
        await asyncio.gather(*crowd)


async def test_a_pinned_model_is_never_stopped_and_the_refusal_has_the_numbers(
    tmp_path: Path,
) -> None:
    a = fake_model("a", model_path=weights(tmp_path, "a", 300), pin=True)
    b = fake_model("b", model_path=weights(tmp_path, "b", 300))
    local = upstream_of(a, b)
    settings = quick_settings(ram_budget_bytes=500 * MIB)
    async with running(tmp_path, local, settings=settings) as backends:
        await chat(backends, target_of(local, "a"))
        refused = await refusal(chat(backends, target_of(local, "b")))
        assert (refused.status, refused.code) == (503, "does_not_fit")
        assert "GiB" in refused.message
        assert status_of(backends, "local/a").state == "ready"


async def test_two_models_that_fit_stay_together(tmp_path: Path) -> None:
    local = upstream_of(*(fake_model(n, model_path=weights(tmp_path, n, 200)) for n in "ab"))
    settings = quick_settings(ram_budget_bytes=500 * MIB)
    async with running(tmp_path, local, settings=settings) as backends:
        for name in "ab":
            await chat(backends, target_of(local, name))
        assert [s.state for s in backends.status()] == ["ready", "ready"]
