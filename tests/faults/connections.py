"""Faults of connections: slow clients, idle ones, many streams, few file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from pathlib import Path

from faults.kit import PATH, Box, box, encoded, raw

LISTENERS = ("proxy", "base_url", "sidecar")


def slow_loris(folder: Path) -> str:
    """100 connections a listener that send a byte of a request every half second."""
    with box(folder) as it:
        payload = raw("x", encoded("hello"))
        sockets = [_connected(it, listener) for listener in LISTENERS for _ in range(100)]
        slowest = 0.0
        for at in range(10):
            for one in sockets:
                one.send(payload[at : at + 1])
            slowest = max(slowest, it.check())
        for one in sockets:
            one.close()
        after = it.check()
        return (
            f"300 slow clients; meanwhile the slowest answer took {slowest:.2f} s, "
            f"after it {after:.2f} s"
        )


def idle_connections(folder: Path) -> str:
    """2,000 open connections that say nothing."""
    _allow_descriptors(8_192)
    with box(folder) as it:
        before, memory = it.descriptors(), it.memory_mib()
        sockets = [_connected(it, LISTENERS[n % 3]) for n in range(2_000)]
        slowest = it.check()
        grown = it.memory_mib()
        for one in sockets:
            one.close()
        _eventually(lambda: all(it.descriptors()[n] <= before[n] + 20 for n in before), 30)
        rises = ", ".join(
            f"{'proxy' if n == 'addon' else n} +{grown[n] - memory[n]:.0f} MiB" for n in memory
        )
        return (
            f"2,000 idle connections: {rises}; slowest answer {slowest:.2f} s; "
            "all descriptors given back"
        )


def streams(folder: Path) -> str:
    """300 streams of 5 seconds at once, half by the proxy, half by the gateway."""
    _allow_descriptors(8_192)
    with box(folder, settings="sidecar: {queue_length: 400}\n") as it:
        gaps, bad = asyncio.run(_streams(it, 300))
        assert not bad, bad[:5]
        gaps.sort()
        return (
            f"300 streams whole; longest gap between two pieces of one (sent every 0.1 s): "
            f"median {gaps[len(gaps) // 2]:.2f} s, worst {gaps[-1]:.2f} s"
        )


def few_descriptors(folder: Path) -> str:
    """64 file descriptors a process, 100 clients."""
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, old[1]))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, old)
        it = stack.enter_context(box(folder))
        for process in it.planes().values():
            process.rlimit(resource.RLIMIT_NOFILE, (64, 64))
        sockets = []
        for listener in ("base_url", "sidecar"):
            for _ in range(100):
                with contextlib.suppress(OSError):
                    sockets.append(_connected(it, listener))
        for one in sockets:
            one.close()
        pids = {n: p.pid for n, p in it.planes().items()}
        _eventually(lambda: _serves(it), 60)
        assert pids == {n: p.pid for n, p in it.planes().items()}, "a plane was replaced"
        return (
            "64 descriptors, 100 clients a listener: refused while full, "
            "serves again when they leave; no restart"
        )


async def _streams(it: Box, count: int) -> tuple[list[float], list[str]]:
    import aiohttp

    bad: list[str] = []
    gaps: list[float] = []

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        base = it.base("base_url" if number % 2 else "sidecar")
        words = {"role": "user", "content": f"{number} long stream"}
        asked = {"model": "m", "stream": True, "messages": [words]}
        last, worst, received = time.monotonic(), 0.0, b""
        async with session.post(base + PATH, json=asked) as answer:
            async for piece in answer.content.iter_any():
                if received:
                    worst = max(worst, time.monotonic() - last)
                last = time.monotonic()
                received += piece
        gaps.append(worst)
        if received.count(b'"content":"x"') != 50 or not received.endswith(b"[DONE]\n\n"):
            bad.append(f"{number}: {answer.status} {received[-200:]!r}")

    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector, trust_env=False) as session,
        asyncio.timeout(120),
    ):
        await asyncio.gather(*(one(session, number) for number in range(count)))
    return gaps, bad


def _serves(it: Box) -> bool:
    try:
        it.check()
    except Exception:  # refused in whatever way while it is full
        return False
    return True


def _connected(it: Box, listener: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", it.up.record[f"{listener}_port"]), timeout=20)


def _eventually(holds: object, timeout_s: float) -> None:
    from proxy_kit import wait_until

    wait_until(holds, timeout_s)  # type: ignore[arg-type]


def _allow_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
