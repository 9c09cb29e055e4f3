"""What the tests of local engines share: backends over the fake engine program, and requests."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import psutil

from turnout_rules.model import Model, Target, Upstream
from turnout_rules.settings import Engines, Settings, Sidecar
from turnout_sidecar.backends import Backends, BackendStatus, Refused
from turnout_sidecar.machine import MachineProbe

FAKE_ENGINE = Path(__file__).parent / "engines" / "fake_engine.py"
MIB = 1024 * 1024


def fake_model(name: str, *flags: str, journal: Path | None = None, **fields: Any) -> Model:
    """A model of `engine: command` that the fake engine serves."""
    command = (sys.executable, "-S", str(FAKE_ENGINE), "--port", "{port}", "--name", "{model}")
    command += ("--max-num-seqs", "{max_num_seqs}")
    if journal is not None:
        command += ("--journal", str(journal))
    return Model(name=name, command=command + flags, **fields)


def upstream_of(*models: Model, **fields: Any) -> Upstream:
    return Upstream(
        name="local", **{"engine": "command", **fields}, models={m.name: m for m in models}
    )


def target_of(upstream: Upstream, name: str) -> Target:
    return Target(f"{upstream.name}/{name}", upstream, upstream.models[name])


def table_of(*upstreams: Upstream) -> Any:
    return SimpleNamespace(upstreams={u.name: u for u in upstreams})


def quick_settings(**fields: Any) -> Settings:
    """Settings without any long wait; `fields` go to whichever part has them."""
    engines = {"stop_timeout_s": 1.0, "max_ram_percent": 100.0, "router_cores": 1}
    sidecar: dict[str, Any] = {"queue_length": 1_000}
    for name, value in fields.items():
        (engines if name in Engines.__struct_fields__ else sidecar)[name] = value
    return Settings(engines=Engines(**engines), sidecar=Sidecar(**sidecar))


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    *upstreams: Upstream,
    settings: Settings | None = None,
    machine: MachineProbe | None = None,
) -> AsyncIterator[Backends]:
    """Backends over `upstreams`; nothing they started may be left afterwards."""
    backends = Backends(
        settings or quick_settings(),
        data_dir=folder / "data",
        runtime_dir=folder / "run",
        machine=machine or MachineProbe(),
    )
    backends.use_table(table_of(*upstreams))
    await backends.start()
    try:
        yield backends
    finally:
        pids = [status.pid for status in backends.status() if status.pid]
        await backends.close()
        assert not [pid for pid in pids if is_alive(pid)], "an engine outlived its keeper"


async def chat(
    backends: Backends,
    target: Target,
    *,
    client: str = "",
    timeout_s: float = 30.0,
    priority: str = "interactive",
    retries: int = 0,
) -> str:
    """One plain request, retried like the gateway does it when the engine breaks off."""
    for left in range(retries, -1, -1):
        try:
            async with backends.lease(
                target, client=client, timeout_s=timeout_s, priority=priority
            ) as lease:
                return await ask(lease.base_url, lease.model)
        except (aiohttp.ClientError, OSError):
            if not left:
                raise
            await asyncio.sleep(0.25)
    raise AssertionError("unreachable")


async def ask(base_url: str, model: str) -> str:
    """POST a chat and return its text."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    timeout = aiohttp.ClientTimeout(total=60)
    async with (
        aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
        session.post(f"{base_url}/chat/completions", json=body) as answer,
    ):
        answer.raise_for_status()
        value = await answer.json()
        assert value["model"] == model
        text: str = value["choices"][0]["message"]["content"]
        return text


def status_of(backends: Backends, name: str) -> BackendStatus:
    return next(status for status in backends.status() if status.name == name)


def with_model(upstream: Upstream, model: Model) -> Upstream:
    return msgspec.structs.replace(upstream, models={**upstream.models, model.name: model})


async def until(fact: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for a fact, with a deadline instead of a sleep."""
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


async def refusal(call: Any) -> Refused:
    """The refusal that awaiting `call` raises."""
    try:
        await call
    except Refused as refused:
        return refused
    raise AssertionError("it was not refused")


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def lines(journal: Path, word: str) -> list[str]:
    """The journal's entries that begin with `word`."""
    if not journal.exists():
        return []
    return [line for line in journal.read_text().splitlines() if line.startswith(word)]
