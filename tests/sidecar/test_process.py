"""Engine processes: bound to the sidecar's life, and reaped if that is not enough."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from engine_kit import FAKE_ENGINE, is_alive, until
from turnout_sidecar.lifecycle import engine_cores
from turnout_sidecar.log_ring import LogRing
from turnout_sidecar.orphans import Record, Records, boot_id
from turnout_sidecar.process import MARKER, free_port, kill_marked, spawn
from turnout_sidecar.runners.exec_engine import parse_cpus

_SIDECAR = """
import asyncio, os, sys
from pathlib import Path
from turnout_sidecar.log_ring import LogRing
from turnout_sidecar.orphans import Records
from turnout_sidecar.process import spawn

async def main():
    process = await spawn(sys.argv[2:], name="local/a", env=os.environ, cpus="", log=LogRing())
    Records(Path(sys.argv[1])).write("local/a", process.marker, process.pid)
    print(process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_an_engine_and_its_runaway_child_do_not_survive_a_killed_sidecar(
    tmp_path: Path,
) -> None:
    records, child_file = tmp_path / "engines", tmp_path / "child"
    engine = [sys.executable, "-S", str(FAKE_ENGINE), "--port", str(free_port())]
    sidecar = subprocess.Popen(
        [sys.executable, "-c", _SIDECAR, str(records), *engine, "--fork", str(child_file)],
        stdout=subprocess.PIPE,
    )
    assert sidecar.stdout is not None
    pid = int(sidecar.stdout.readline())
    await until(lambda: child_file.exists() and child_file.read_text())
    child = int(child_file.read_text())
    sidecar.send_signal(signal.SIGKILL)
    sidecar.wait()
    sidecar.stdout.close()
    if sys.platform.startswith("linux"):
        await until(lambda: not is_alive(pid), 3)
    assert is_alive(child)
    assert Records(records).reap() == ["local/a"]
    assert not is_alive(child)
    assert not is_alive(pid)
    assert not list(records.iterdir())


def test_records_of_a_living_sidecar_are_left_alone(tmp_path: Path) -> None:
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        records = Records(tmp_path)
        records.write("local/a", "local/a#0123", engine.pid)
        assert records.reap() == []
        assert len(list(tmp_path.iterdir())) == 1
    finally:
        engine.kill()
        engine.wait()


@pytest.mark.parametrize("boot", ["", "another boot"])
def test_a_process_that_is_not_proven_ours_is_never_killed(tmp_path: Path, boot: str) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        record = Record(
            backend="local/a",
            marker="local/a#0123",
            pid=stranger.pid,
            started_at=time.time(),
            boot_id=boot or boot_id(),
            owner_pid=2**22 + 1,
            owner_started_at=1.0,
        )
        (tmp_path / "0123.json").write_bytes(msgspec.json.encode(record))
        (tmp_path / "broken.json").write_bytes(b"{")
        assert Records(tmp_path).reap() == []
        assert stranger.poll() is None
        assert not list(tmp_path.iterdir())
    finally:
        stranger.kill()
        stranger.wait()


async def test_an_engine_runs_in_its_own_session_niced_and_first_in_line_for_the_oom_killer() -> (
    None
):
    cpu = min(os.sched_getaffinity(0))
    code = (
        "import os; print(os.getsid(0) == os.getpid(), os.nice(0) > 0, "
        "open('/proc/self/oom_score_adj').read().strip(), os.sched_getaffinity(0))"
    )
    log = LogRing()
    process = await spawn(
        [sys.executable, "-c", code], name="x", env=os.environ, cpus=str(cpu), log=log
    )
    assert await process.wait() == 0
    await process.stop(0)
    assert log.tail(1) == [f"True True 600 {{{cpu}}}"]


async def test_a_program_that_does_not_exist_ends_with_127_and_says_so() -> None:
    log = LogRing()
    process = await spawn(["no-such-engine"], name="x", env=os.environ, cpus="", log=log)
    assert await process.wait() == 127
    await process.stop(0)
    assert "cannot run no-such-engine" in log.tail(1)[0]


def test_nothing_is_killed_for_a_marker_nobody_carries() -> None:
    assert MARKER not in os.environ
    assert kill_marked("local/a#nobody") == 0


def test_cpu_lists_are_read_like_taskset_reads_them() -> None:
    assert parse_cpus("2-4,7") == {2, 3, 4, 7}
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpus("two")


def test_the_router_keeps_cores_of_its_own_where_there_are_enough() -> None:
    available = len(os.sched_getaffinity(0))
    cores = engine_cores(2)
    assert cores.threads == max(1, available - min(2, available // 2))


def test_the_log_keeps_its_last_lines_and_rotates_its_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a.log"
    log = LogRing(path, max_bytes=1_000)
    for i in range(200):
        log.feed(f"line {i}\n".encode())
    log.feed("half a line, 半".encode()[:-1])
    assert log.tail(2)[0] == "line 199"
    assert log.tail(2)[1].startswith("half a line")
    assert path.stat().st_size <= 1_000
    assert path.with_name("a.log.1").stat().st_size <= 1_000
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_line_without_end_does_not_grow_for_ever() -> None:
    log = LogRing(max_bytes=100_000)
    for _ in range(1_000):
        log.feed(b"x" * 1_000)
    assert sum(len(line) for line in log.tail(10_000)) <= 110_000
