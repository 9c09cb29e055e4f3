"""`python tests/soak/soak.py SECONDS`: mixed load, random kills, random rule edits.

Prints the numbers as JSON and exits 1 if an admitted request was lost, or if a process, file
descriptor or memory leaked. The engines are the fake engine program; everything else is real.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from engine_kit import MIB, chat, fake_model, quick_settings, table_of, target_of, upstream_of
from turnout_rules.model import Upstream
from turnout_sidecar.backends import Backends, Refused
from turnout_sidecar.machine import MachineProbe
from turnout_sidecar.process import marked

SEED = 20261201
CLIENTS = 12
MAX_GROWTH_MB = 30


def rules(folder: Path) -> Upstream:
    """Three models, memory for two of them."""
    models = []
    for name, mib in (("a", 200), ("b", 200), ("c", 300)):
        weights = folder / f"{name}.bin"
        with weights.open("wb") as file:
            file.truncate(mib * MIB)
        models.append(
            fake_model(name, "--spam", "500", model_path=str(weights), max_num_seqs=3, ttl_s=3.0)
        )
    return upstream_of(*models)


class Soak:
    """The load, the mischief and the counting."""

    def __init__(self, backends: Backends, local: Upstream, seconds: float) -> None:
        self.backends = backends
        self.local = local
        self.until = time.monotonic() + seconds
        self.random = random.Random(SEED)
        self.count: Counter[str] = Counter()
        self.waits: list[float] = []

    def is_over(self) -> bool:
        return time.monotonic() > self.until

    async def client(self, name: str) -> None:
        while not self.is_over():
            target = target_of(self.local, self.random.choice("aabbc"))
            priority = self.random.choice(["interactive", "interactive", "batch"])
            began = time.monotonic()
            request = chat(
                self.backends, target, client=name, timeout_s=60, priority=priority, retries=6
            )
            if self.random.random() < 0.05:
                task = asyncio.create_task(request)
                await asyncio.sleep(self.random.random() * 0.05)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                self.count["cancelled"] += 1
                continue
            try:
                await request
                self.count["answered"] += 1
                self.waits.append(time.monotonic() - began)
            except Refused as refused:
                self.count[f"refused {refused.code}"] += 1
                await asyncio.sleep(0.2)
            except (aiohttp.ClientError, OSError):
                self.count["lost"] += 1

    async def killer(self) -> None:
        while not self.is_over():
            await asyncio.sleep(self.random.uniform(0.5, 1.5))
            pids = [s.pid for s in self.backends.status() if s.pid]
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.random.choice(pids), signal.SIGKILL)
                self.count["kills"] += 1

    async def editor(self) -> None:
        while not self.is_over():
            await asyncio.sleep(self.random.uniform(1.0, 3.0))
            name = self.random.choice("abc")
            model = msgspec.structs.replace(
                self.local.models[name], max_num_seqs=self.random.randint(1, 4)
            )
            self.local = msgspec.structs.replace(
                self.local, models={**self.local.models, name: model}
            )
            self.backends.use_table(table_of(self.local))
            self.count["rule edits"] += 1


async def soak(seconds: float) -> dict[str, Any]:
    """Run it; the numbers."""
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local = rules(folder)
        settings = quick_settings(ram_budget_bytes=500 * MIB)
        backends = Backends(
            settings, data_dir=folder / "data", runtime_dir=folder / "run", machine=MachineProbe()
        )
        backends.use_table(table_of(local))
        await backends.start()
        run = Soak(backends, local, seconds)
        warm = asyncio.create_task(_measure_later(process, min(10.0, seconds / 3)))
        clients = [run.client(f"client-{i}") for i in range(CLIENTS)]
        try:
            await asyncio.gather(*clients, run.killer(), run.editor())
            starts = sum(s.starts for s in backends.status())
            crashes = sum(s.crashes for s in backends.status())
        finally:
            await backends.close()
        rss_before, fds_before = await warm
        gc.collect()
        left = [p.pid for p in marked(lambda value: value.startswith("local/")) if _mine(p)]
        waits = sorted(run.waits) or [0.0]
        return {
            "seconds": seconds,
            **dict(sorted(run.count.items())),
            "starts": starts,
            "crashes": crashes,
            "wait_p50_s": round(waits[len(waits) // 2], 3),
            "wait_p99_s": round(waits[int(len(waits) * 0.99)], 3),
            "wait_max_s": round(waits[-1], 3),
            "processes_left": len(left),
            "fds_grown": process.num_fds() - fds_before,
            "rss_grown_mb": round((process.memory_info().rss - rss_before) / MIB, 1),
        }


def failures(numbers: dict[str, Any]) -> list[str]:
    """What must not have happened."""
    names = ("lost", "processes_left")
    found = [f"{name}: {numbers[name]}" for name in names if numbers.get(name)]
    if numbers["fds_grown"] > 0:
        found.append(f"file descriptors leaked: {numbers['fds_grown']}")
    if numbers["rss_grown_mb"] > MAX_GROWTH_MB:
        found.append(f"memory grew by {numbers['rss_grown_mb']} MB")
    if not numbers.get("answered"):
        found.append("nothing was answered")
    return found


async def _measure_later(process: psutil.Process, seconds: float) -> tuple[int, int]:
    before_fds = process.num_fds()
    await asyncio.sleep(seconds)
    return process.memory_info().rss, before_fds


def _mine(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return str(Path(__file__).parent.parent / "engines") in " ".join(process.cmdline())
    return False


if __name__ == "__main__":
    result = asyncio.run(soak(float(sys.argv[1]) if len(sys.argv) > 1 else 300.0))
    print(json.dumps(result, indent=2))
    problems = failures(result)
    print("\n".join(problems) or "nothing lost, nothing leaked")
    sys.exit(1 if problems else 0)
