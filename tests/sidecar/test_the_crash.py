"""The crash that Turnout exists for, replayed: a 12 GB card, three models that together outgrow it,
and eight requests at once. The card is made up; processes, queue and deaths are real."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

import pytest

from engine_kit import (
    FAKE_ENGINE,
    chat,
    quick_settings,
    refusal,
    running,
    status_of,
    target_of,
    upstream_of,
)
from fake_nvml import Card, FakeNvml
from model_folders import INT4, LLAMA3_8B, QWEN25_7B, model_folder
from turnout_rules.model import Model, Upstream

sys.path.insert(0, str(FAKE_ENGINE.parent))
import card

GIB = 1 << 30
CARD = 12 * GIB


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A 12 GB card; its folder."""
    folder = tmp_path / "card"
    folder.mkdir()
    (folder / "total").write_text(str(CARD))
    FakeNvml(Card(CARD, holders=lambda: card.holders(folder), lag_s=0.3)).install(monkeypatch)
    return folder


def vllm_model(
    folder: Path, gpu: Path, name: str, weight_bytes: int, share: float, flags: str = ""
) -> Model:
    config = (QWEN25_7B if weight_bytes > 3 * GIB else LLAMA3_8B) | INT4
    path = model_folder(folder / name, config, weight_bytes)
    env = {"PYTHONPATH": str(FAKE_ENGINE.parent / "site"), "FAKE_CARD": str(gpu)}
    env["FAKE_FLAGS"] = f"--token-s 0.02 {flags}"
    return Model(
        name=name,
        model_path=str(path),
        python=sys.executable,
        gpu_memory_utilization=share,
        max_num_seqs=2,
        max_model_len=4_096,
        quantization="gptq",
        env=env,
    )


def three_models(folder: Path, gpu: Path) -> Upstream:
    return upstream_of(
        vllm_model(folder, gpu, "main", int(5.6e9), 0.65),
        vllm_model(folder, gpu, "tool", int(2.1e9), 0.4),
        vllm_model(folder, gpu, "classifier", int(1.1e9), 0.3),
        engine="vllm",
    )


async def test_three_models_and_eight_requests_kill_nothing(
    tmp_path: Path, gpu: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnout_sidecar")
    local = three_models(tmp_path, gpu)
    names = ["main", "tool", "classifier"]
    async with running(tmp_path, local) as backends:
        requests = [
            asyncio.create_task(
                chat(backends, target_of(local, names[i % 3]), client=str(i), timeout_s=60)
            )
            for i in range(8)
        ]
        most, together = 0, 0
        while not all(request.done() for request in requests):
            held = card.holders(gpu)
            most, together = max(most, sum(held.values())), max(together, len(held))
            await asyncio.sleep(0.01)
        assert len([await request for request in requests]) == 8
        assert 0 < most <= CARD
        assert together < 3  # all three never lay on the card at once
        assert [s.crashes for s in backends.status()] == [0, 0, 0]
        assert all(s.running <= s.seats for s in backends.status())
        assert {s.device for s in backends.status()} == {"gpu0"}
    assert card.holders(gpu) == {}
    assert "waiting" in caplog.text
    assert "stops" in caplog.text or "drains to make room for" in caplog.text


async def test_memory_that_others_hold_is_counted_and_theirs_is_never_touched(
    tmp_path: Path, gpu: Path
) -> None:
    (gpu / str(os.getpid())).write_text(str(6 * GIB))  # a training run, say
    local = three_models(tmp_path, gpu)
    async with running(tmp_path, local) as backends:
        refused = await refusal(chat(backends, target_of(local, "main")))
        assert refused.code == "does_not_fit"
        words = str(refused)
        assert "needs 7.8 GiB on gpu0, 6.0 GiB is free" in words
        assert "use a smaller" in words
        assert status_of(backends, "local/main").starts == 0
        assert await chat(backends, target_of(local, "tool"))
    assert card.holders(gpu) == {os.getpid(): 6 * GIB}


async def test_a_context_that_cannot_fit_is_refused_before_anything_starts(
    tmp_path: Path, gpu: Path
) -> None:
    model = vllm_model(tmp_path, gpu, "main", int(5.6e9), 0.6)
    config = json.loads((tmp_path / "main/config.json").read_text())
    config["max_position_embeddings"] = 131_072
    (tmp_path / "main/config.json").write_text(json.dumps(config))
    fields = {name: getattr(model, name) for name in model.__struct_fields__}
    local = upstream_of(Model(**fields | {"max_model_len": 131_072}), engine="vllm")
    async with running(tmp_path, local, settings=quick_settings()) as backends:
        refused = await refusal(chat(backends, target_of(local, "main")))
        assert "a request of 131072 tokens needs 7.0 GiB more; set max_model_len: " in str(refused)
        assert status_of(backends, "local/main").starts == 0


async def test_a_card_that_filled_up_meanwhile_is_tried_once_with_the_share_that_is_free(
    tmp_path: Path, gpu: Path
) -> None:
    local = upstream_of(vllm_model(tmp_path, gpu, "main", int(2.1e9), 0.7), engine="vllm")
    async with running(tmp_path, local) as backends:
        # Held where NVML does not see it, as by a process in another container.
        (gpu / "1").write_text(str(5 * GIB))
        seen = card.holders
        card.holders = lambda folder: {p: s for p, s in seen(folder).items() if p != 1}
        try:
            assert await chat(backends, target_of(local, "main"), timeout_s=30)
        finally:
            card.holders = seen
        status = status_of(backends, "local/main")
        assert (status.starts, status.crashes, status.state) == (2, 1, "ready")
        assert any("gpu_memory_utilization 0.7 → 0.5" in x for x in backends.logs("local/main", 99))
