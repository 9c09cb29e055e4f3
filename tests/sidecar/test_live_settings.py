"""Every setting that the settings page calls live reaches a running sidecar, and leaves it again.

One table of cases; a test holds it complete against the tables that settings are read by.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from aiohttp import web

from engine_kit import FAKE_ENGINE, MIB
from sidecar_kit import (
    Provider,
    Sidecar,
    answering,
    eventually,
    failing,
    hanging,
    provider,
    sidecar,
)
from turnout_rules.kinds import AT_SAVE
from turnout_rules.settings import Settings
from turnout_rules.settings_loading import SECTIONS
from turnout_sidecar import service as service_module
from turnout_sidecar.machine import Gpu, Machine, MachineProbe

pytestmark = pytest.mark.usefixtures("own_folders")
LONG = "x" * 300


@dataclass
class Scene:
    """A sidecar over four providers and some engines."""

    it: Sidecar
    rules: Path
    thinker: Provider
    other: Provider
    routes: dict[str, Any] = field(default_factory=dict)

    async def save(self, settings: dict[str, Any]) -> None:
        live = self.it.service.live
        before = live.current
        (self.rules / "turnout.yaml").write_text(json.dumps(settings))
        await eventually(lambda: live.current is not before, 10)

    async def post(self, model: str, *, text: str = "hello", seconds: float = 5.0, **more: Any):
        """The status and the body; None if it took longer."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        headers = more.pop("headers", {})
        url = f"{self.it.url}/v1/chat/completions"
        try:
            async with (
                asyncio.timeout(seconds),
                aiohttp.ClientSession(trust_env=False) as session,
                session.post(url, json=body, headers=headers) as answer,
            ):
                return answer.status, await answer.content.readany(), dict(answer.headers)
        except TimeoutError:
            return None

    async def whole(self, model: str) -> bytes:
        """A whole stream."""
        body = {"model": model, "messages": [{"role": "user", "content": "x"}], "stream": True}
        url = f"{self.it.url}/v1/chat/completions"
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
            return await answer.read()

    async def status(self, model: str, **more: Any) -> int | None:
        answer = await self.post(model, **more)
        return answer[0] if answer else None

    def engine(self, name: str) -> Any:
        return self.it.service.backends._supervisor.backends[f"local/{name}"]

    async def asked(self, text: str = "what is the weather like") -> Any:
        """The verdict of the classifier that the settings name, once it serves."""
        keeper, chosen = self.it.service.classifier, self.it.service.live.current.settings
        is_new = lambda: keeper._made_of == chosen.classifier and keeper._decider.classifier  # noqa: E731
        await eventually(lambda: bool(is_new()))
        return await self.it.service.decider.classify(text, (), self.it.service.live.current)


class Probe(MachineProbe):
    """This machine, with a card, and with swapping."""

    swap_in_mb_s = 0.0
    looks = 0

    def look(self) -> Machine:
        self.looks += 1  # memory comes back: a little more is free each time
        free, total = (1 << 34) + self.looks * MIB, 1 << 35
        card = Gpu(index=0, name="x", total_bytes=total, free_bytes=free, drives_display=None)
        return replace(super().look(), gpus=(card,), swap_in_mb_s=self.swap_in_mb_s)


async def thinking(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    said = {"choice": "weather", "probabilities": {"weather": 0.7, "code": 0.2, "none": 0.1}}
    if "slowly" in body["state"]["request"]:
        await asyncio.sleep(0.25)
    return web.json_response({"answers": {"route": said}})


def engine(*flags: str, **fields: Any) -> dict[str, Any]:
    command = [sys.executable, "-S", str(FAKE_ENGINE), "--port", "{port}", "--name", "{model}"]
    return {"command": [*command, *flags], **fields}


@asynccontextmanager
async def scene(folder: Path, settings: dict[str, Any]) -> AsyncIterator[Scene]:
    weights = folder / "weights.bin"
    weights.write_bytes(bytes(MIB))
    async with (
        provider(answering("fine")) as good,
        provider(hanging) as slow,
        provider(failing(500)) as bad,
        provider(thinking) as thinker,
        provider(thinking) as other,
    ):
        models = {
            "a": engine(),
            "stuck": engine("--load-s", "60", "--load-silently"),
            "long": engine("--tokens", "60", "--token-s", "0.05"),
            "noisy": engine("--spam", "2000"),
            "card": engine(model_path=str(weights), env={"CUDA_VISIBLE_DEVICES": "0"}),
        }
        upstreams = {
            "good": {"base_url": good.url},
            "slow": {"base_url": slow.url, "max_concurrency": 1},
            "hung": {"base_url": slow.url},
            "bad": {"base_url": bad.url},
            "local": {"engine": "command", "models": models},
        }
        routes = [
            {"name": "word", "match": ["zebra"], "priority": 2, "target": "good/zebra"},
            {
                "name": "scripted",
                "when": {"model": ["scripted"]},
                "script": "scripts/slow.py",
                "target": "good/plain",
                "priority": 1,
            },
            {"name": "weather", "examples": ["will it rain"], "target": "good/weather"},
            {"name": "code", "examples": ["a bug in my program"], "target": "good/code"},
            {"name": "rest", "match": [".*"], "target": "good/rest"},
        ]
        rules = folder / "rules"
        (rules / "scripts").mkdir(parents=True)
        (rules / "scripts" / "slow.py").write_text(
            "def choose(request):\n    total = 0\n    for i in range(60000):\n        total += i\n"
            "    return 'good/scripted'\n"
        )
        (rules / "routes.yaml").write_text(json.dumps({"routes": routes}))
        (rules / "upstreams.yaml").write_text(json.dumps({"upstreams": upstreams}))
        (rules / "turnout.yaml").write_text(json.dumps(settings))
        async with sidecar(rules) as it:
            yield Scene(it, rules, thinker, other)


# -- looks: each sees one value before and after, another while its setting is saved --------------


async def rows(s: Scene, what: str) -> Any:
    return getattr(s.engine("a").status(0.0, 0, 0), what)


async def hung(s: Scene) -> Any:
    return await s.status("hung/x", seconds=1.0)


async def crowded(s: Scene) -> Any:
    """The second request at an upstream that serves one at a time."""
    first = asyncio.create_task(s.post("slow/x", seconds=3.0))
    try:
        await asyncio.sleep(0.1)
        return await s.status("slow/x", seconds=1.0)
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def comment(s: Scene) -> Any:
    answer = await s.post("hung/x", seconds=1.0, stream=True)
    return answer and answer[1][:12]


async def note(s: Scene) -> Any:
    first = asyncio.create_task(s.post("slow/x", seconds=3.0))
    try:
        await asyncio.sleep(0.1)
        answer = await s.post("slow/x", seconds=2.0, stream=True)
        return answer is not None and b"reasoning_content" in answer[1]
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def rest(s: Scene) -> Any:
    name = f"bad/m{len(s.routes)}"
    s.routes[name] = True
    for _ in range(3):
        assert await s.status(name) == 500
    left_s = s.it.service.dispatcher.resting.resting(s.it.service.now())[name]
    return round(left_s / 10)


async def logged(s: Scene) -> Any:
    path = s.it.service.data_dir / "decisions.jsonl"
    path.unlink(missing_ok=True)
    assert await s.status("turnout/auto") == 200
    try:
        await eventually(path.exists, 1.0)
    except TimeoutError:
        return False
    return True


async def accepted(s: Scene) -> Any:
    return (await s.asked()).is_accepted


async def late(s: Scene) -> Any:
    return "late" in (await s.asked("slowly now")).reason


async def sent(s: Scene) -> Any:
    """How much of a text is sent, and whether a text seen before is."""
    count = len(s.thinker.bodies)
    await s.asked(LONG)
    await s.asked(LONG)
    return len(s.thinker.bodies) - count


async def length(s: Scene) -> Any:
    await s.asked(LONG)
    return len(s.thinker.bodies[-1]["state"]["request"]) if s.thinker.bodies else None


async def where(s: Scene) -> Any:
    counts = len(s.thinker.bodies), len(s.other.bodies)
    await s.asked()
    return len(s.thinker.bodies) - counts[0], len(s.other.bodies) - counts[1]


async def model(s: Scene) -> Any:
    await s.asked()
    return s.thinker.bodies[-1].get("model")


async def key(s: Scene) -> Any:
    await s.asked()
    return s.thinker.headers[-1].get("authorization")


async def kind(s: Scene) -> Any:
    chosen = s.it.service.live.current.settings.classifier.kind
    await eventually(lambda: (s.it.service.decider.classifier is None) == (chosen == "off"))
    verdict = await s.it.service.decider.classify("rain", (), s.it.service.live.current)
    return verdict.route or verdict.reason


async def threads(s: Scene) -> Any:
    verdict = await s.asked()
    assert verdict.route == "weather"
    return s.it.service.decider.classifier._settings.threads


async def cores(s: Scene) -> Any:
    await s.it.service.backends.stop_backend("local/a")
    assert await s.status("local/a") == 200
    return len(psutil.Process(s.engine("a").process.pid).cpu_affinity())


async def stall(s: Scene) -> Any:
    return s.engine("stuck").stall_s


async def patience(s: Scene) -> Any:
    return s.it.service.backends._supervisor.settings.engines.stop_timeout_s


async def served(s: Scene) -> Any:
    return await s.status("local/a")


async def on_card(s: Scene) -> Any:
    answer = await s.status("local/card")
    assert s.engine("card").device == "gpu0"
    return answer


async def rotated(s: Scene) -> Any:
    log = s.engine("noisy").log.path
    old = log.with_name(log.name + ".1")
    old.unlink(missing_ok=True)
    for _ in range(3):
        assert await s.status("local/noisy") == 200
    return old.exists()


async def reading(s: Scene) -> Any:
    live, script = s.it.service.live, s.it.service.live.current.rules.scripts["scripts/slow.py"]
    reader = live.current.reader
    assert live.current.turns._reading == live.current.settings.reading
    return reader.reading, script.budget_ms == live.current.settings.reading.script_budget_ms


THINKER = {"kind": "systemone", "url": "THINKER", "timeout_ms": 400}
PATIENT: dict[str, Any] = {"sidecar": {"router_timeout_ms": 400, "first_byte_timeout_ms": 1500}}
Case = tuple[str, Any, Callable[[Scene], Awaitable[Any]], Any, Any, dict[str, Any]]
CASES: list[Case] = [
    # key, saved value, look, what it sees before and after, what it sees while saved, settings
    ("sidecar.queue_length", 3, lambda s: rows(s, "queue_length"), 32, 3, {}),
    ("engines.ttl_s", 7.0, lambda s: rows(s, "ttl_s"), 600.0, 7.0, {}),
    ("sidecar.first_byte_timeout_ms", 200, hung, None, 504, {}),
    ("sidecar.router_timeout_ms", 200, crowded, None, 504, {}),
    ("sidecar.keepalive_s", 0.1, comment, None, b": keep-alive", {}),
    ("sidecar.loading_note", True, note, False, True, {"sidecar": {"keepalive_s": 0.1}}),
    ("sidecar.cooldown_s", 100.0, rest, 3, 10, {}),
    ("sidecar.decision_log", "decisions.jsonl", logged, False, True, {}),
    (
        "classifier.kind",
        "off",
        kind,
        "weather",
        "classifier off: switched off in the settings",
        {"classifier": THINKER},
    ),
    ("classifier.threshold", 0.9, accepted, True, False, {"classifier": THINKER}),
    (
        "classifier.url",
        "OTHER",
        where,
        (1, 0),
        (0, 1),
        {"classifier": {**THINKER, "cache_entries": 0}},
    ),
    ("classifier.model", "m", model, None, "m", {"classifier": {**THINKER, "cache_entries": 0}}),
    (
        "classifier.api_key_env",
        "ONE_KEY",
        key,
        None,
        "Bearer sk-the-targets-own",
        {"classifier": {**THINKER, "cache_entries": 0}},
    ),
    (
        "classifier.timeout_ms",
        50,
        late,
        False,
        True,
        {"classifier": {**THINKER, "cache_entries": 0}},
    ),
    (
        "classifier.max_text_chars",
        16,
        length,
        300,
        17,
        {"classifier": {**THINKER, "cache_entries": 0}},
    ),
    ("classifier.cache_entries", 0, sent, 1, 2, {"classifier": THINKER}),
    ("classifier.threads", 2, threads, 1, 2, {"classifier": THINKER}),
    ("engines.stall_timeout_s", 5.0, stall, 120.0, 5.0, {}),
    ("engines.stop_timeout_s", 3.0, patience, 10.0, 3.0, {}),
    ("engines.max_ram_percent", 1.0, served, 200, 503, PATIENT),
    ("engines.max_swap_in_mb_s", 100.0, served, 503, 200, PATIENT),
    ("engines.ram_budget_bytes", 1024, served, 200, 503, PATIENT),
    ("engines.vram_budget_bytes", 1024, on_card, 200, 503, PATIENT),
    ("engines.log_bytes", 1024, rotated, False, True, {}),
]
READING: dict[str, Any] = {
    "max_text_chars": 100,
    "max_decoded_bytes": 2048,
    "wrappers_cut": ["mine"],
    "wrappers_open": ["mine"],
    "conversation": True,
    "conversation_header": "x-mine",
    "turn_ttl_s": 5.0,
    "max_turns": 7,
    "script_budget_ms": 9.0,
}
OF_THE_PROXY = {"sidecar.default_timeout_ms"}


def test_the_table_of_cases_is_complete() -> None:
    live = {
        f"{section}.{name}"
        for section, (keys, _) in SECTIONS.items()
        for name, key_ in keys.items()
        if key_.takes_effect == AT_SAVE and section in ("sidecar", "classifier", "engines")
    }
    assert {case[0] for case in CASES} == live - OF_THE_PROXY
    assert READING.keys() == SECTIONS["reading"][0].keys()


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
async def test_a_saved_setting_counts_at_once_and_so_does_taking_it_out(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, value, look, usual, changed, base = case
    probe = Probe()
    probe.swap_in_mb_s = 60.0 if "swap" in name else 0.0
    monkeypatch.setattr(service_module, "MachineProbe", lambda: probe)
    async with scene(tmp_path, {"classifier": {"kind": "off"}}) as s:
        urls = {"THINKER": s.thinker.url, "OTHER": s.other.url}
        plain = _filled({"classifier": {"kind": "off"}, **base}, urls)
        section, _, setting = name.partition(".")
        saved = {**plain, section: {**plain.get(section, {}), setting: urls.get(value, value)}}
        if plain != {"classifier": {"kind": "off"}}:
            await s.save(plain)
        assert await look(s) == usual
        await s.save(saved)
        await _comes_to(look, s, changed)
        await s.save(plain)
        await _comes_to(look, s, usual)


async def _comes_to(look: Callable[[Scene], Awaitable[Any]], s: Scene, wanted: Any) -> None:
    """At once, but for an engine that is just being stopped for it."""
    found = await look(s)
    if found != wanted:
        await asyncio.sleep(0.5)
        found = await look(s)
    assert found == wanted


def _filled(value: Any, urls: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(one, urls) for name, one in value.items()}
    return urls.get(value, value) if isinstance(value, str) else value


async def test_every_limit_of_reading_counts_at_once(tmp_path: Path) -> None:
    off = {"classifier": {"kind": "off"}}
    async with scene(tmp_path, off) as s:
        usual = await reading(s)
        assert usual == (Settings().reading, True)
        for name, value in READING.items():
            await s.save({**off, "reading": {name: value}})
            found, is_scripts = await reading(s)
            wanted = tuple(value) if isinstance(value, list) else value
            assert (getattr(found, name), is_scripts) == (wanted, True)
        await s.save(off)
        assert await reading(s) == usual


async def test_what_waits_for_a_restart_stays_as_it_was_and_is_named_at_the_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    off = {"classifier": {"kind": "off"}}
    async with scene(tmp_path, off) as s:
        moved = {
            "sidecar": {"port": 9999, "data_dir": "/elsewhere"},
            "engines": {"router_cores": 0},
        }
        await s.save({**off, **moved})
        assert "counts after a restart of Turnout: sidecar.port, sidecar.data_dir" in caplog.text
        assert "counts from each engine's next start: engines.router_cores" in caplog.text
        assert s.it.service.live.current.settings.sidecar == Settings().sidecar
        caplog.clear()
        await s.save({**off, **moved, "observe": True})
        assert "counts after" not in caplog.text, "said once"
        await s.save(off)
        assert "counts" not in caplog.text


async def test_an_engines_next_start_takes_the_cores_that_were_saved(tmp_path: Path) -> None:
    if (all_cores := len(psutil.Process().cpu_affinity())) < 2:
        pytest.skip("one core: nothing to keep for the router")
    off = {"classifier": {"kind": "off"}}
    async with scene(tmp_path, off) as s:
        few = await cores(s)
        assert few < all_cores
        await s.save({**off, "engines": {"router_cores": 0}})
        assert await cores(s) == all_cores
        await s.save(off)
        assert await cores(s) == few


async def test_a_budget_below_what_runs_stops_the_idle_at_once_and_drains_the_busy(
    tmp_path: Path,
) -> None:
    settings = {"classifier": {"kind": "off"}}
    async with scene(tmp_path, settings) as s:
        assert await s.status("local/a") == await s.status("local/long") == 200
        busy = asyncio.create_task(s.whole("local/long"))
        await eventually(lambda: s.it.service.backends._supervisor.schedule.running("local/long"))
        await s.save({**settings, "engines": {"ram_budget_bytes": 1024}, **PATIENT})
        assert s.engine("long").state == "draining"
        await eventually(lambda: s.engine("a").state == "stopped")
        assert b"[DONE]" in await busy
        await eventually(lambda: s.engine("long").state == "stopped")
        answer = await s.post("local/a")
        assert answer is not None and answer[0] == 503 and b"does_not_fit" in answer[1]
