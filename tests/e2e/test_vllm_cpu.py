"""A real vLLM on the CPU: started, put to sleep, woken, left by its clients, killed, cleaned up.

It needs an environment of its own, so it only runs where `TURNOUT_TEST_VLLM_PYTHON` names the
interpreter of one that has vLLM's CPU build, transformers and a tokenizer library. The model is a
tiny random one, made there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import psutil
import pytest

from engine_kit import chat, quick_settings, running, status_of, target_of, until, upstream_of
from turnout_rules.model import Model, Upstream
from turnout_sidecar.backends import Backends

PYTHON = os.environ.get("TURNOUT_TEST_VLLM_PYTHON", "")

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not PYTHON, reason="TURNOUT_TEST_VLLM_PYTHON names no environment with a vLLM for the CPU"
    ),
]

MAKE_MODEL = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
folder = sys.argv[1]
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
vocabulary = {letter: number for number, letter in enumerate(letters)}
vocabulary["<|end|>"] = len(vocabulary)
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
fast.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
fast.save_pretrained(folder)
config = Qwen3Config(
    vocab_size=len(vocabulary), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=2048,
    eos_token_id=vocabulary["<|end|>"],
)
Qwen3ForCausalLM(config).save_pretrained(folder)
"""
ENV = {
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    folder = tmp_path_factory.mktemp("model")
    subprocess.run([PYTHON, "-c", MAKE_MODEL, str(folder)], check=True, timeout=240)
    model = Model(
        name="tiny",
        model_path=str(folder),
        python=PYTHON,
        max_num_seqs=2,
        max_model_len=1_024,
        sleep=True,
        args=("--enforce-eager", "--dtype", "float32"),
        env=ENV,
    )
    return upstream_of(model, engine="vllm")


@asynccontextmanager
async def started(folder: Path, vllm: Upstream) -> AsyncIterator[Backends]:
    settings = quick_settings(stop_timeout_s=20.0)
    async with running(folder, vllm, settings=settings) as backends:
        target = target_of(vllm, "tiny")
        assert await chat(backends, target, timeout_s=300)
        yield backends


def engine_of(backends: Backends) -> psutil.Process:
    return psutil.Process(status_of(backends, "local/tiny").pid or 0)


async def test_it_starts_serves_and_leaves_nothing_behind(tmp_path: Path, vllm: Upstream) -> None:
    async with started(tmp_path, vllm) as backends:
        family = [engine_of(backends), *engine_of(backends).children(recursive=True)]
        assert len(family) > 1
        assert status_of(backends, "local/tiny").starts == 1
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


async def test_idle_it_is_put_to_sleep_and_woken_by_the_next_request(
    tmp_path: Path, vllm: Upstream
) -> None:
    model = msgspec.structs.replace(vllm.models["tiny"], ttl_s=1.0)
    sleepy = upstream_of(model, engine="vllm")
    async with started(tmp_path, sleepy) as backends:
        await until(lambda: status_of(backends, "local/tiny").state == "sleeping", seconds=30)
        assert await chat(backends, target_of(sleepy, "tiny"), timeout_s=120)
        assert status_of(backends, "local/tiny").starts == 1


async def test_a_client_that_leaves_stops_the_generation(tmp_path: Path, vllm: Upstream) -> None:
    async with started(tmp_path, vllm) as backends:
        target = target_of(vllm, "tiny")
        async with backends.lease(target, client="c", timeout_s=60) as lease:
            body = {
                "model": "tiny",
                "messages": [{"role": "user", "content": "a"}],
                "max_tokens": 900,
                "ignore_eos": True,
                "stream": True,
            }
            async with aiohttp.ClientSession() as session:
                url = f"{lease.base_url}/chat/completions"
                async with session.post(url, json=body) as answer:
                    assert answer.status == 200
                    await answer.content.readany()
                    assert await running_requests(session, lease.base_url) == 1
                left = time.monotonic()
                while await running_requests(session, lease.base_url):
                    assert time.monotonic() - left < 5, "it went on generating"
                    await asyncio.sleep(0.1)


async def running_requests(session: aiohttp.ClientSession, base_url: str) -> int:
    async with session.get(f"{base_url.removesuffix('/v1')}/metrics") as answer:
        text = await answer.text()
    lines = [x for x in text.splitlines() if x.startswith("vllm:num_requests_running")]
    return int(sum(float(line.split()[-1]) for line in lines))


async def test_a_dead_engine_core_is_found_and_the_next_request_is_served(
    tmp_path: Path, vllm: Upstream
) -> None:
    async with started(tmp_path, vllm) as backends:
        family = engine_of(backends).children(recursive=True)
        cores = [p for p in family if "EngineCore" in " ".join(p.cmdline()) + p.name()]
        assert cores, [p.cmdline() for p in family]
        os.kill(cores[0].pid, signal.SIGKILL)
        await until(lambda: status_of(backends, "local/tiny").crashes == 1, seconds=30)
        assert await chat(backends, target_of(vllm, "tiny"), timeout_s=300, retries=2)
        assert status_of(backends, "local/tiny").starts == 2
