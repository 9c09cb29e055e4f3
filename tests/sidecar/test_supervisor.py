"""The supervisor over real processes of the fake engine."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

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
    target_of,
    until,
    upstream_of,
)
from turnout_sidecar import gauge, lifecycle
from turnout_sidecar.backends import Waiting
from turnout_sidecar.machine import Machine, MachineProbe


async def test_fifty_requests_at_once_start_one_engine(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    local = upstream_of(fake_model("a", "--load-s", "0.3", journal=journal, max_num_seqs=4))
    async with running(tmp_path, local) as backends:
        target = target_of(local, "a")
        answers = await asyncio.gather(*(chat(backends, target, client=str(i)) for i in range(50)))
        assert len(answers) == 50
        assert len(lines(journal, "start")) == 1
        at_once = [int(line.split()[1]) for line in lines(journal, "served")]
        assert len(at_once) == 50
        assert max(at_once) <= 4
        assert status_of(backends, "local/a").state == "ready"


async def test_waiters_are_told_what_they_wait_for(tmp_path: Path) -> None:
    told: list[Waiting] = []
    local = upstream_of(fake_model("a", "--load-s", "0.3"))
    async with (
        running(tmp_path, local) as backends,
        backends.lease(target_of(local, "a"), timeout_s=5, on_wait=told.append),
    ):
        pass
    assert "local/a is loading" in [waiting.message for waiting in told]


async def test_an_idle_engine_stops_after_its_ttl_counted_from_the_last_end(tmp_path: Path) -> None:
    model = fake_model("a", "--tokens", "20", "--token-s", "0.05", ttl_s=0.5)
    local = upstream_of(model)
    async with running(tmp_path, local) as backends:
        await chat(backends, target_of(local, "a"))  # takes a second, twice the TTL
        assert status_of(backends, "local/a").state == "ready"
        await until(lambda: status_of(backends, "local/a").state == "stopped")


async def test_a_full_queue_is_answered_at_once(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a", "--token-s", "0.2", max_num_seqs=1, queue=2))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        await chat(backends, target)
        tasks = [asyncio.create_task(chat(backends, target)) for _ in range(3)]
        await until(lambda: status_of(backends, "local/a").waiting == 2)
        refused = await refusal(chat(backends, target))
        assert (refused.status, refused.code) == (429, "queue_full")
        assert refused.retry_after_s
        assert refused.queue_position == 2
        await asyncio.gather(*tasks)


async def test_waiting_for_room_ends_with_a_timeout(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a", max_num_seqs=1))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends, backends.lease(target, timeout_s=5):
        refused = await refusal(chat(backends, target, timeout_s=0.3))
        assert (refused.status, refused.code) == (504, "queue_timeout")


async def test_the_time_of_a_start_does_not_count_against_the_wait(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a", "--load-s", "1"))
    async with running(tmp_path, local) as backends:
        assert await chat(backends, target_of(local, "a"), timeout_s=0.3)


async def test_cancelled_waiters_leave_the_queue(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a", max_num_seqs=1))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        async with backends.lease(target, timeout_s=5):
            waiter = asyncio.create_task(chat(backends, target))
            await until(lambda: status_of(backends, "local/a").waiting == 1)
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)
            assert status_of(backends, "local/a").waiting == 0
        assert status_of(backends, "local/a").running == 0
        assert await chat(backends, target)


async def test_out_of_memory_at_start_is_tried_once_more_with_less(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    model = fake_model("a", "--oom-over-seqs", "4", journal=journal, max_num_seqs=8)
    local = upstream_of(model)
    async with running(tmp_path, local) as backends:
        assert await chat(backends, target_of(local, "a"))
        assert len(lines(journal, "start")) == 2
        assert status_of(backends, "local/a").seats == 4


async def test_out_of_memory_twice_is_a_failure_with_a_remedy_and_no_loop(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    model = fake_model("a", "--oom-over-seqs", "0", journal=journal, max_num_seqs=8)
    local = upstream_of(model)
    async with running(tmp_path, local) as backends:
        target = target_of(local, "a")
        refused = await refusal(chat(backends, target))
        assert refused.status == 503
        assert refused.retry_after_s
        assert "memory" in refused.message.lower()
        assert (await refusal(chat(backends, target))).status == 503
        await asyncio.sleep(0.5)
        assert len(lines(journal, "start")) == 2
        assert status_of(backends, "local/a").state == "failed"


async def test_an_unasked_exit_with_code_0_is_a_crash(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a", "--exit-code", "0"))
    async with running(tmp_path, local) as backends:
        refused = await refusal(chat(backends, target_of(local, "a")))
        assert refused.code == "engine_failed"
        assert status_of(backends, "local/a").crashes == 1


async def test_a_killed_engine_is_started_again_by_the_next_request(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    local = upstream_of(fake_model("a", journal=journal))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        await chat(backends, target)
        os.kill(status_of(backends, "local/a").pid or 0, signal.SIGKILL)
        assert await chat(backends, target, retries=2)
        assert len(lines(journal, "start")) == 2


async def test_a_kill_in_the_middle_of_a_start_loses_no_waiter(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    local = upstream_of(fake_model("a", "--load-s", "0.6", journal=journal))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        tasks = [asyncio.create_task(chat(backends, target)) for _ in range(4)]
        await until(lambda: lines(journal, "start"))
        os.kill(int(lines(journal, "start")[0].split()[1]), signal.SIGKILL)
        assert len(await asyncio.gather(*tasks)) == 4
        assert len(lines(journal, "start")) == 2


async def test_a_start_without_progress_is_stuck(tmp_path: Path) -> None:
    model = fake_model("a", "--load-s", "60", "--load-silently", start_timeout_s=1.0)
    local = upstream_of(model)
    async with running(tmp_path, local) as backends:
        refused = await refusal(chat(backends, target_of(local, "a")))
        assert refused.status == 503


async def test_a_slow_start_with_progress_is_not_stuck(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a", "--load-s", "2", start_timeout_s=0.6))
    async with running(tmp_path, local) as backends:
        assert await chat(backends, target_of(local, "a"))


async def test_an_engine_that_ignores_sigterm_and_its_runaway_child_are_both_gone(
    tmp_path: Path,
) -> None:
    pid_file = tmp_path / "child"
    local = upstream_of(fake_model("a", "--ignore-sigterm", "--fork", str(pid_file)))
    async with running(tmp_path, local) as backends:
        await chat(backends, target_of(local, "a"))
        child = int(pid_file.read_text())
        assert is_alive(child)
        await backends.stop_backend("local/a")
        assert not is_alive(child)
        assert status_of(backends, "local/a").state == "stopped"


async def test_the_runaway_child_of_a_crashed_engine_is_gone_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    local = upstream_of(fake_model("a", "--fork", str(pid_file)))
    async with running(tmp_path, local) as backends:
        await chat(backends, target_of(local, "a"))
        child = int(pid_file.read_text())
        os.kill(status_of(backends, "local/a").pid or 0, signal.SIGKILL)
        await until(lambda: not is_alive(child))


async def test_death_under_load_shrinks_the_engine_once(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    model = fake_model("a", "--die-over", "4", "--token-s", "0.05", journal=journal, max_num_seqs=8)
    local = upstream_of(model)
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        tasks = [chat(backends, target, client=str(i), retries=2) for i in range(8)]
        assert len(await asyncio.gather(*tasks)) == 8
        assert len(lines(journal, "start")) == 2
        assert status_of(backends, "local/a").seats == 4


async def test_a_preloaded_engine_is_ready_without_any_request(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a", preload=True))
    async with running(tmp_path, local) as backends:
        await until(lambda: status_of(backends, "local/a").state == "ready")


async def test_a_full_disk_costs_the_log_file_and_nothing_else(tmp_path: Path) -> None:
    logs = tmp_path / "data" / "logs"
    logs.mkdir(parents=True)
    (logs / "local-a.log").symlink_to("/dev/full")
    local = upstream_of(fake_model("a", "--spam", "5000"))
    async with running(tmp_path, local) as backends:
        for _ in range(5):
            assert await chat(backends, target_of(local, "a"))
        assert any("xxx" in line for line in backends.logs("local/a", 50))


async def test_the_memory_guard_admits_nothing_and_says_why(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a"))
    settings = quick_settings(max_ram_percent=0.01, first_byte_timeout_ms=400)
    async with running(tmp_path, local, settings=settings) as backends:
        refused = await refusal(chat(backends, target_of(local, "a"), timeout_s=0.3))
        assert (refused.status, refused.code) == (503, "memory_pressure")
        assert "max_ram_percent" in refused.message
        assert status_of(backends, "local/a").starts == 0


async def test_an_upstream_of_someone_else_gets_no_more_than_its_concurrency(
    tmp_path: Path,
) -> None:
    other = upstream_of(fake_model("m"), engine=None, base_url="http://127.0.0.1:9/v1")

    limited = msgspec.structs.replace(other, max_concurrency=2)
    target = target_of(limited, "m")
    settings = quick_settings(max_ram_percent=0.01)
    async with (
        running(tmp_path, limited, settings=settings) as backends,
        backends.lease(target, timeout_s=1) as one,
        backends.lease(target, timeout_s=1),
    ):
        assert one.base_url == "http://127.0.0.1:9/v1"
        refused = await refusal(chat(backends, target, timeout_s=0.2))
        assert refused.status == 504


async def test_a_ready_engine_that_answers_no_health_check_any_more_is_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("HUNG_AFTER_S", 0.5), ("WATCH_S", 0.1), ("PROBE_TIMEOUT_S", 0.2)):
        monkeypatch.setattr(lifecycle, name, seconds)
    journal = tmp_path / "journal"
    local = upstream_of(fake_model("a", "--hang-health-after", "4", journal=journal))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        await chat(backends, target)
        await until(lambda: status_of(backends, "local/a").crashes == 1)
        assert "no health check" in status_of(backends, "local/a").message
        assert await chat(backends, target, retries=2)
        assert len(lines(journal, "start")) == 2


def quick_watch(monkeypatch: pytest.MonkeyPatch, **changed: float) -> None:
    """Of an engine's health, with short deadlines."""
    seconds = {"HUNG_AFTER_S": 0.5, "SPINNING_AFTER_S": 60.0, "WATCH_S": 0.1}
    for name, value in {**seconds, "PROBE_TIMEOUT_S": 0.2, **changed}.items():
        monkeypatch.setattr(lifecycle, name, value)


@pytest.mark.parametrize("is_preloaded", [False, True])
async def test_a_frozen_engine_is_killed_and_another_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_preloaded: bool
) -> None:
    quick_watch(monkeypatch)
    local = upstream_of(fake_model("a", preload=is_preloaded))
    target = target_of(local, "a")
    async with running(tmp_path, local) as backends:
        await chat(backends, target)
        pid = status_of(backends, "local/a").pid or 0
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: not is_alive(pid), 20)
        if is_preloaded:
            await until(lambda: status_of(backends, "local/a").state == "ready", 20)
        assert await chat(backends, target)
        assert status_of(backends, "local/a").crashes == 1


async def test_an_engine_that_computes_without_end_for_nobody_is_hung_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_watch(monkeypatch, SPINNING_AFTER_S=1.5)
    local = upstream_of(fake_model("a", "--hang-health-after", "4", "--spin"))
    async with running(tmp_path, local) as backends:
        await chat(backends, target_of(local, "a"))
        pid = status_of(backends, "local/a").pid or 0
        await until(lambda: not is_alive(pid), 20)
        await until(lambda: "no health check" in status_of(backends, "local/a").message)


async def test_an_engine_whose_answer_flows_is_not_hung_whatever_its_health_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_watch(monkeypatch)
    local = upstream_of(fake_model("a", "--hang-health-after", "4"))
    async with running(tmp_path, local) as backends:
        async with backends.lease(target_of(local, "a"), timeout_s=5) as lease:
            pid = status_of(backends, "local/a").pid or 0
            for _ in range(30):
                await asyncio.sleep(0.1)
                lease.on_piece()
            assert is_alive(pid)
        await until(lambda: not is_alive(pid), 20)


async def test_a_driver_that_never_answers_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauge, "LOOK_S", 0.1)
    answers = threading.Event()

    class Hung(MachineProbe):
        looks = 0

        def look(self) -> Machine:
            self.looks += 1
            if self.looks > 2:
                answers.wait(30)
            return super().look()

    local, probe = upstream_of(fake_model("a", ttl_s=2.0)), Hung()
    try:
        async with running(tmp_path, local, machine=probe) as backends:
            assert await chat(backends, target_of(local, "a"))
            await until(lambda: probe.looks > 2)
            assert await chat(backends, target_of(local, "a"))
            await until(lambda: status_of(backends, "local/a").state == "stopped", 15)
            assert probe.looks == 3, "one thread waits, not one a look"
    finally:
        answers.set()


async def test_an_engine_that_leaks_past_the_budget_makes_another_stop_and_not_the_machine(
    tmp_path: Path,
) -> None:
    local = upstream_of(
        fake_model("leaky", "--leak-mb", "60", ttl_s=0), fake_model("small", ttl_s=0)
    )
    settings = quick_settings(ram_budget_bytes=200 * MIB)
    async with running(tmp_path, local, settings=settings) as backends:
        await chat(backends, target_of(local, "small"))
        for _ in range(3):
            await chat(backends, target_of(local, "leaky"))
        await until(lambda: sum(s.state == "ready" for s in backends.status()) == 1, seconds=20.0)
        assert sum(s.crashes for s in backends.status()) == 0
        assert max(s.need_bytes for s in backends.status()) > 180 * MIB
        assert await chat(backends, target_of(local, "small"))
