"""Plans beside what the real llama.cpp prints when it starts: caches, states, working memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_kit import MIB, running, status_of, target_of, until, upstream_of
from tiny_models import tiny
from turnout_rules.model import Model, Target, Upstream
from turnout_sidecar import assessment
from turnout_sidecar.backends import Backends
from turnout_sidecar.model_store import path_of
from turnout_sidecar.planner import Measurements, Plan, Room, families
from turnout_sidecar.planner.llamacpp_memory import PROGRAM_BYTES
from turnout_sidecar.planner.measured import told

pytestmark = [pytest.mark.local, pytest.mark.timeout(240)]
pytest.importorskip("xllamacpp", reason="the `local` extra is not installed")

AS_IT_IS: tuple[str, ...] = ()
CASES: list[tuple[str, int, int, tuple[str, ...]]] = [
    # family, context, requests, arguments
    ("llama", 4_096, 2, AS_IT_IS),
    ("llama", 1_000, 3, AS_IT_IS),
    ("llama", 4_096, 2, ("-ctk", "q8_0")),
    ("llama", 4_096, 2, ("-ctv", "q4_0", "-ctk", "q4_0")),
    ("llama", 4_096, 2, ("-kvu",)),
    ("llama", 4_096, 2, ("-ub", "128")),
    ("llama", 4_096, 2, ("--context-shift",)),
    ("llama", 4_096, 2, ("-c", "0")),
    ("llama", 4_096, 2, ("--embeddings",)),
    ("qwen3moe", 4_096, 2, AS_IT_IS),
    ("gemma3", 4_096, 2, AS_IT_IS),
    ("gemma3", 8_192, 4, ("-kvu",)),
    ("gemma3", 8_192, 2, ("--swa-full",)),
    ("gemma4", 4_096, 2, AS_IT_IS),
    ("deepseek2", 4_096, 2, AS_IT_IS),
    ("qwen35", 4_096, 2, AS_IT_IS),
    ("mamba2", 4_096, 3, AS_IT_IS),
    ("falcon-h1", 4_096, 2, AS_IT_IS),
    ("lfm2", 4_096, 2, AS_IT_IS),
]


def upstream(path: Path, context: int, requests: int, args: tuple[str, ...]) -> Upstream:
    more = ("-t", "1", "-lv", "4", "--ctx-checkpoints", "0", *args)
    model = Model(
        name="m", model_path=str(path), max_num_seqs=requests, max_model_len=context, args=more
    )
    return upstream_of(model, engine="llamacpp")


def plan(target: Target, folder: Path) -> Plan:
    room = Room("cpu", 64 << 30, 64 << 30)
    return assessment.plan_of(target, room, Measurements(folder / "data" / "measured.json"))


async def printed(backends: Backends) -> tuple[int, int]:
    """(all bytes, bytes of caches) that the engine names while it starts."""
    await backends.start_backend("local/m")
    return told(backends.logs("local/m", 2_000), is_on_card=False)


@pytest.mark.parametrize(("family", "context", "requests", "args"), CASES)
async def test_a_plan_is_what_the_engine_prints(
    tmp_path: Path, family: str, context: int, requests: int, args: tuple[str, ...]
) -> None:
    local = upstream(tiny(tmp_path / "m.gguf", family), context, requests, args)
    planned = plan(target_of(local, "m"), tmp_path)
    async with running(tmp_path, local) as backends:
        whole, caches = await printed(backends)
    assert planned.kv_total_bytes == pytest.approx(caches, rel=0.01)
    assert planned.total_bytes - PROGRAM_BYTES == pytest.approx(whole, rel=0.03)


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("qwen35", {"full_attention_interval": 2}),
        ("gemma3", {"attention__sliding_window_pattern": 3}),
        ("gemma4", {"attention__shared_kv_layers": 3}),
    ],
)
async def test_keys_that_change_what_layers_keep(
    tmp_path: Path, family: str, key: dict[str, int]
) -> None:
    plain, other = (tiny(tmp_path / f"{n}.gguf", family, **k) for n, k in enumerate(({}, key)))
    before = plan(target_of(upstream(plain, 4_096, 2, ()), "m"), tmp_path)
    local = upstream(other, 4_096, 2, ())
    planned = plan(target_of(local, "m"), tmp_path)
    async with running(tmp_path, local) as backends:
        _, caches = await printed(backends)
    assert planned.kv_total_bytes == pytest.approx(caches, rel=0.01)
    assert planned.kv_total_bytes != before.kv_total_bytes


async def test_a_draft_model_counts(tmp_path: Path) -> None:
    main, draft = (tiny(tmp_path / f"{n}.gguf", n) for n in ("llama", "qwen3moe"))
    args = ("-md", str(draft), "-ctkd", "q8_0")
    local = upstream(main, 4_096, 2, args)
    planned = plan(target_of(local, "m"), tmp_path)
    async with running(tmp_path, local) as backends:
        whole, caches = await printed(backends)
    assert planned.kv_total_bytes == pytest.approx(caches, rel=0.01)
    assert planned.total_bytes - PROGRAM_BYTES == pytest.approx(whole, rel=0.05)


async def test_the_real_model_as_chat_engine_and_as_embedding_engine(tmp_path: Path) -> None:
    if (path := path_of("smollm2")) is None:
        pytest.skip("the model is not here: run `turnout models pull`")
    for args in ((), ("--embeddings", "--pooling", "mean")):
        local = upstream(path, 4_096, 2, args)
        planned = plan(target_of(local, "m"), tmp_path)
        async with running(tmp_path, local) as backends:
            whole, caches = await printed(backends)
        assert planned.kv_total_bytes == caches
        assert planned.total_bytes - PROGRAM_BYTES == pytest.approx(whole, rel=0.03)


async def test_a_family_that_is_not_known_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "KNOWN_GGUF", frozenset())
    # Nothing here tells that most of its layers look back on a window only.
    monkeypatch.setattr(families, "WINDOWS", {})
    local = upstream(tiny(tmp_path / "m.gguf", "gemma3"), 8_192, 2, ())
    target = target_of(local, "m")
    guess = plan(target, tmp_path)
    assert guess.is_guess
    assert "the architecture 'gemma3' is not known here, so this is a guess" in guess.warning
    async with running(tmp_path, local) as backends:
        _, caches = await printed(backends)
        held = status_of(backends, "local/m").rss_bytes
        await until((tmp_path / "data" / "measured.json").exists)
    assert guess.kv_total_bytes > 2 * caches
    known = plan(target, tmp_path)
    assert (known.is_guess, known.warning) == (False, "")
    assert known.kv_total_bytes == caches
    assert known.total_bytes == pytest.approx(max(held, known.total_bytes), rel=0.1)
    assert known.total_bytes < 300 * MIB
    longer = upstream(tmp_path / "m.gguf", 16_384, 2, ())
    assert plan(target_of(longer, "m"), tmp_path).kv_total_bytes == 2 * caches
