"""Does the router keep answering while inference is saturated? Latency idle and under load.

A real proxy, a real sidecar and a real llama.cpp engine whose seats and queue are full of long
generations. `python saturation.py [SECONDS]` measures for so long idle and so long under load, in
one run, and prints both and their ratio; it judges nothing, for neighbours of a shared machine
weigh in.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))

from proxy_kit import Upstream, proxy, upstream, write_rules
from sidecar_process import sidecar_process

ROUTES = """
routes:
  - {name: generate, match: [generate], priority: 5, target: local/tiny}
  - {name: remote, match: [remotely], priority: 4, target: near/m}
  - {name: cooking, target: near/cook, examples: [boil an egg, roast a chicken, 红烧肉]}
  - {name: travel, target: near/trip, examples: [a train to Vienna, a hotel, 去北京的机票]}
  - {name: rest, match: [.*], target: near/rest}
"""
LOADERS = 12
PAUSE_S = 0.02


def percentiles(times: list[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    times = sorted(times)
    at = min(len(times) - 1, len(times) * 99 // 100)
    return {"p50_ms": round(times[len(times) // 2] * 1e3, 2), "p99_ms": round(times[at] * 1e3, 2)}


async def sample(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], seconds: float
) -> dict[str, float]:
    """One request after the other, with pauses, for `seconds`."""
    times = []
    until = time.monotonic() + seconds
    number = time.monotonic_ns()  # no text twice: the classifier remembers
    while time.monotonic() < until:
        number += 1
        fresh = json.loads(json.dumps(body).replace("NUMBER", str(number)))
        started = time.perf_counter()
        async with session.post(url, json=fresh) as answer:
            await answer.read()
            assert answer.status == 200, answer.status
        times.append(time.perf_counter() - started)
        await asyncio.sleep(PAUSE_S)
    return percentiles(times)


def probes(sidecar: str, base: str) -> dict[str, tuple[str, dict[str, Any]]]:
    chat = f"{base}/v1/chat/completions"
    said = {"model": "m", "messages": [{"role": "user", "content": "remotely NUMBER please"}]}
    return {
        "/route, rule hit": (f"{sidecar}/route", {"text": "remotely NUMBER please"}),
        "/route, classifier": (f"{sidecar}/route", {"text": "roast duck NUMBER"}),
        "proxy, rule hit": (chat, said),
    }


async def load(session: aiohttp.ClientSession, gateway: str, stop: asyncio.Event) -> None:
    """Long generations, one after the other."""
    body = {
        "model": "local/tiny",
        "messages": [{"role": "user", "content": "tell a very long story"}],
        "max_tokens": 400,
        "ignore_eos": True,
    }
    while not stop.is_set():
        async with session.post(f"{gateway}/v1/chat/completions", json=body) as answer:
            await answer.read()


async def measure(sidecar: str, base: str, seconds: float) -> dict[str, Any]:
    """Idle, then loaded, for every probe."""
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        idle = {}
        for name, (url, body) in probes(sidecar, base).items():
            await sample(session, url, body, 1.0)
            idle[name] = await sample(session, url, body, seconds)
        stop = asyncio.Event()
        loaders = [asyncio.create_task(load(session, sidecar, stop)) for _ in range(LOADERS)]
        await asyncio.sleep(5)
        loaded = {}
        for name, (url, body) in probes(sidecar, base).items():
            loaded[name] = await sample(session, url, body, seconds)
        async with session.get(f"{sidecar}/backends") as answer:
            engine = (await answer.json())["backends"][0]
        stop.set()
        for task in loaders:
            task.cancel()
        await asyncio.gather(*loaders, return_exceptions=True)
    report: dict[str, Any] = {"running": engine["running"], "waiting": engine["waiting"]}
    for name, before in idle.items():
        after = loaded[name]
        ratio = {key: round(after[key] / before[key], 2) for key in before}
        report[name] = {"idle": before, "saturated": after, "ratio": ratio}
    return report


def rules_of(folder: Path, near: Upstream) -> Path:
    upstreams = f'upstreams:\n  near: {{base_url: "{near.url}/v1"}}\n'
    upstreams += "  local:\n    engine: llamacpp\n    models:\n"
    upstreams += "      tiny: {model_path: smollm2, max_num_seqs: 2, max_model_len: 2048}\n"
    turnout = "sidecar: {router_timeout_ms: 600000, first_byte_timeout_ms: 600000}\n"
    return write_rules(folder / "rules", routes=ROUTES, upstreams=upstreams, turnout=turnout)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory() as name, upstream() as near:
        folder = Path(name)
        rules = rules_of(folder, near)
        with sidecar_process(folder / "s", rules) as sidecar:
            arguments = ("--sidecar", sidecar.url, "--gateway", sidecar.url)
            with proxy(folder / "p", rules, *arguments) as p:
                report = asyncio.run(measure(sidecar.url, p.base_url, seconds))
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
