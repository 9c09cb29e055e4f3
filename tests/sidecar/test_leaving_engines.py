"""Engines that are edited, taken out of the rules or stopped: what becomes of their waiters."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine_kit import (
    MIB,
    chat,
    fake_model,
    is_alive,
    lines,
    quick_settings,
    refusal,
    running,
    status_of,
    table_of,
    target_of,
    until,
    upstream_of,
)
from turnout_rules.model import Price, Upstream

SLOW = ("--tokens", "40", "--token-s", "0.05")
"""Two seconds of an answer."""


async def test_two_quick_edits_load_a_model_once(tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    def edited(seats: int) -> Upstream:
        model = fake_model("a", "--load-s", "0.3", journal=journal, max_num_seqs=seats)
        return upstream_of(msgspec.structs.replace(model, preload=True))

    async with running(tmp_path, edited(1)) as backends:
        await until(lambda: status_of(backends, "local/a").state == "ready")
        for seats in (2, 3, 4):
            backends.use_table(table_of(edited(seats)))
        await until(
            lambda: (
                status_of(backends, "local/a").seats == 4
                and status_of(backends, "local/a").state == "ready"
            )
        )
        assert len(lines(journal, "start")) == 2


async def test_a_backend_taken_out_of_the_rules_stops_and_is_forgotten(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a"))
    async with running(tmp_path, local) as backends:
        await chat(backends, target_of(local, "a"))
        pid = status_of(backends, "local/a").pid or 0
        backends.use_table(table_of())
        await until(lambda: not backends.status())
        assert not is_alive(pid)


async def test_waiters_of_an_edited_engine_go_to_its_new_settings_while_it_still_serves(
    tmp_path: Path,
) -> None:
    local = upstream_of(fake_model("a", max_num_seqs=1))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        async with backends.lease(target, timeout_s=5) as lease:
            waiter = asyncio.create_task(chat(backends, target, timeout_s=30))
            await until(lambda: status_of(backends, "local/a").waiting == 1)
            old = status_of(backends, "local/a").pid
            changed = upstream_of(fake_model("a", max_num_seqs=7))
            backends.use_table(table_of(changed))
            assert status_of(backends, "local/a~1").running == 1
            assert await asyncio.wait_for(waiter, 5), "served while the old one serves"
            assert status_of(backends, "local/a").seats == 7
            before = status_of(backends, "local/a~1")
            assert (before.state, before.pid, before.base_url) == ("draining", old, lease.base_url)
            assert await chat(backends, target), "so are those who come now"
        await until(lambda: [s.name for s in backends.status()] == ["local/a"])
        assert old is not None and not is_alive(old)
        assert status_of(backends, "local/a").starts == 2


async def test_without_memory_for_both_waiters_keep_their_place_until_the_old_one_has_ended(
    tmp_path: Path,
) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(64 * MIB))
    model = fake_model("a", max_num_seqs=1, model_path=str(weights))
    local, settings = upstream_of(model), quick_settings(ram_budget_bytes=100 * MIB)
    target = target_of(local, "a")
    async with running(tmp_path, local, settings=settings) as backends:
        async with backends.lease(target, timeout_s=5):
            waiter = asyncio.create_task(chat(backends, target, timeout_s=1))
            await until(lambda: status_of(backends, "local/a").waiting == 1)
            backends.use_table(
                table_of(upstream_of(msgspec.structs.replace(model, max_num_seqs=2)))
            )
            await asyncio.sleep(1.5)
            assert not waiter.done(), "as when a model makes room for another"
        assert await asyncio.wait_for(waiter, 5)


async def test_waiters_of_an_engine_taken_out_of_the_rules_are_refused_at_once(
    tmp_path: Path,
) -> None:
    local = upstream_of(fake_model("a", max_num_seqs=1))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        async with backends.lease(target, timeout_s=5):
            waiter = asyncio.create_task(refusal(chat(backends, target, timeout_s=30)))
            await until(lambda: status_of(backends, "local/a").waiting == 1)
            backends.use_table(table_of())
            refused = await asyncio.wait_for(waiter, 0.5)
            assert (refused.status, refused.code) == (503, "backend_removed")
            assert refused.retry_after_s
            late = await refusal(chat(backends, target))
            assert late.code == "backend_removed", "a request that still holds the old rules"
        await until(lambda: not backends.status())
        assert (await refusal(chat(backends, target))).code == "backend_removed"
        assert not backends.status(), "it is not made anew"


@pytest.mark.parametrize("leaves", ["stopped by hand", "taken out", "edited"])
async def test_a_load_that_nobody_wants_any_more_ends_at_once(tmp_path: Path, leaves: str) -> None:
    journal = tmp_path / "journal"
    local = upstream_of(fake_model("a", "--load-s", "30", journal=journal))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        waiter: Any = asyncio.create_task(chat(backends, target, timeout_s=30))
        await until(lambda: lines(journal, "start"))
        old = status_of(backends, "local/a").pid or 0
        began = time.monotonic()
        if leaves == "stopped by hand":
            await backends.stop_backend("local/a")
        elif leaves == "taken out":
            backends.use_table(table_of())
        else:
            backends.use_table(table_of(upstream_of(fake_model("a", journal=journal))))
        if leaves == "edited":
            assert await waiter, "moved to the new settings"
            assert len(lines(journal, "start")) == 2, "the one that was broken off, and one"
        else:
            refused = await refusal(waiter)
            assert (refused.status, bool(refused.retry_after_s)) == (503, True)
        assert time.monotonic() - began < 5
        await until(lambda: not is_alive(old))


@pytest.mark.parametrize(
    "change",
    [
        {"ttl_s": 5.0},
        {"queue": 3},
        {"pin": True},
        {"preload": True},
        {"price": Price(input=1.0)},
        {"supports": frozenset({"chat"})},
        {"start_timeout_s": 9.0},
    ],
    ids=str,
)
async def test_what_no_engine_is_told_changes_without_a_restart(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    model = fake_model("a")
    local = upstream_of(model)
    async with running(tmp_path, local) as backends:
        await chat(backends, target_of(local, "a"))
        pid = status_of(backends, "local/a").pid
        for one in (msgspec.structs.replace(model, **change), model):
            backends.use_table(table_of(upstream_of(one)))
            status = status_of(backends, "local/a")
            assert (status.state, status.pid) == ("ready", pid)
            assert status.ttl_s == (600.0 if one.ttl_s is None else one.ttl_s)
            assert status.queue_length == (1_000 if one.queue is None else one.queue)
            assert status.is_pinned is one.pin
            assert await chat(backends, target_of(upstream_of(one), "a"))
        assert status_of(backends, "local/a").starts == 1


async def test_an_engine_that_was_made_smaller_stays_so_when_only_its_ttl_changes(
    tmp_path: Path,
) -> None:
    model = fake_model("a", "--oom-over-seqs", "4", max_num_seqs=8)
    local = upstream_of(model)
    async with running(tmp_path, local) as backends:
        await chat(backends, target_of(local, "a"))
        assert status_of(backends, "local/a").seats == 4
        backends.use_table(table_of(upstream_of(msgspec.structs.replace(model, ttl_s=9.0))))
        assert (status_of(backends, "local/a").seats, status_of(backends, "local/a").ttl_s) == (
            4,
            9,
        )
