"""Faults of bodies: huge ones, bombs, providers that never answer or never end; and a flood."""

from __future__ import annotations

import gzip
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
from backports import zstd

from faults.kit import MIB, PATH, Box, Peak, body, box, encoded
from proxy_kit import wait_until

FLOOD = 100_000


def large_bodies(folder: Path) -> str:
    """Ten bodies of 50 MB at once."""
    with box(folder) as it:
        payload = encoded("hello", padding="x" * (50 * 1_000_000))
        rows = []
        for listener in ("base_url", "sidecar"):
            with Peak(it) as peak, ThreadPoolExecutor(10) as pool:
                asked = [
                    pool.submit(
                        it.ask, listener=listener, timeout_s=120, json=None, content=payload
                    )
                    for _ in range(10)
                ]
                statuses = {one.result().status_code for one in asked}
            assert statuses <= {200, 413, 503}, statuses
            it.far.seen.clear()
            wait_until(lambda: max(it.memory_mib().values()) < 250, 20, "memory is given back")
            rows.append(f"{_name(listener)}: answers {sorted(statuses)}, {peak}, given back")
        it.check()
        return "; ".join(rows)


def bombs(folder: Path) -> str:
    """Bodies of 20 KB to 2 MB that decode to 2 GB and more."""
    with box(folder) as it:
        zeros = b"\0" * (64 * MIB)
        made = {
            "gzip": _gzip_bomb(32),
            "deflate": zlib.compress(zeros * 8, 9),
            "zstd": zstd.compress(zeros * 8, 19),
            "gzip, gzip": gzip.compress(_gzip_bomb(32), 9),
            "br": bytes.fromhex("5bffffff0360024000") + b"\0" * 64,
        }
        worst, rows = 0.0, []
        for name, bomb in made.items():
            for listener in ("base_url", "sidecar"):
                with Peak(it) as peak:
                    headers = {"content-encoding": name, "content-type": "application/json"}
                    answer = it.ask(listener=listener, json=None, content=bomb, headers=headers)
                worst = max(worst, peak.rise_mib())
                rows.append(f"{name}: {answer.status_code}")
        it.check()
        assert worst < 400, f"{worst:.0f} MiB for a bomb"
        return f"5 kinds on both planes, the largest rise {worst:.0f} MiB ({'; '.join(rows[::2])})"


def odd_providers(folder: Path) -> str:
    """A provider that never answers, one that never ends, one that sends a line of 100 MB."""
    settings = "sidecar: {first_byte_timeout_ms: 3000}\n"
    with box(folder, settings=settings) as it:
        began = time.monotonic()
        late = it.ask("never answer", "sidecar", 30)
        took = time.monotonic() - began
        assert late.status_code == 504 and took < 10, (late.status_code, took)
        rises = []
        for words in ("endless", "long line"):
            for listener in ("base_url", "sidecar"):
                with Peak(it) as peak:
                    got = _read_some(it, listener, words, 60 * MIB if words == "long line" else MIB)
                rise = f"+{peak.rise_mib():.0f} MiB ({got >> 20} MiB read)"
                rises.append(f"{words} by the {_name(listener)} {rise}")
                assert peak.rise_mib() < 300, rises
        it.check()
        return f"never answers: 504 after {took:.1f} s; {'; '.join(rises)}"


def flood(folder: Path) -> str:
    """100,000 small requests through each master; memory after 20 % and at the end."""
    rows = []
    for name in ("lean", "mitmweb"):
        rate, first, last = _flooded(folder / name, is_lean=name == "lean")
        grown = last - first
        assert grown < 60, f"{name} grew by {grown:.0f} MiB"
        rows.append(f"{name}: {rate:.0f} a second, {first:.0f} → {last:.0f} MiB")
    return f"{FLOOD:,} requests, one after another in 8 connections: " + "; ".join(rows)


def _flooded(folder: Path, *, is_lean: bool) -> tuple[float, float, float]:
    """Requests a second, and the proxy's memory after a fifth and after all, in MiB."""
    marks: list[float] = []
    with box(folder, is_lean=is_lean) as it:
        process = it.planes()["addon"]
        done = threading.Lock()
        count = 0

        def client(number: int) -> None:
            nonlocal count
            with httpx2.Client(trust_env=False, timeout=60) as session:
                url = it.base("base_url") + PATH
                for at in range(FLOOD // 8):
                    answer = session.post(url, json=body(f"hello {number} {at}"))
                    assert answer.status_code == 200
                    with done:
                        count += 1
                        if count in (FLOOD // 5, FLOOD // 8 * 8):
                            marks.append(process.memory_info().rss / MIB)

        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            for one in [pool.submit(client, number) for number in range(8)]:
                one.result()
        rate = FLOOD / (time.monotonic() - began)
        it.far.seen.clear()
    return rate, marks[0], marks[-1]


def _read_some(it: Box, listener: str, words: str, most: int) -> int:
    """Read `most` bytes of an answer, then leave; the provider must notice."""
    left = len(it.far.disconnects)
    got = 0
    with (
        httpx2.Client(trust_env=False, timeout=30) as client,
        client.stream("POST", it.base(listener) + PATH, json=body(words, stream=True)) as answer,
    ):
        assert answer.status_code == 200
        for piece in answer.iter_raw():
            got += len(piece)
            if got >= most:
                break
    wait_until(lambda: len(it.far.disconnects) > left, 20, "the provider is left")
    return got


def _gzip_bomb(times: int) -> bytes:
    """`times` × 64 MiB of zeros; members that follow each other are one stream."""
    return gzip.compress(b"\0" * (64 * MIB), 9) * times


def _name(listener: str) -> str:
    return "gateway" if listener == "sidecar" else "proxy"
