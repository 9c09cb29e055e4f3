"""Vectors, ranks and sounds through the gateway, to loopback providers and to real engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web

from sidecar_kit import provider, sidecar, write_rules
from turnout_sidecar.model_store import path_of

pytestmark = pytest.mark.usefixtures("own_folders")
MODEL = path_of("smollm2")
"""Found before each test gets a cache folder of its own."""
SOUND = bytes(range(256)) * 8_000

UPSTREAMS = """
upstreams:
  ears: {base_url: "{ears}", supports: [transcriptions, speech]}
  local:
    engine: llamacpp
    models:
      chat: {model_path: "{model}", max_num_seqs: 1, max_model_len: 512, args: ["-t", "1"]}
      vectors:
        {model_path: "{model}", max_num_seqs: 1, max_model_len: 512,
         args: ["-t", "1", "--embeddings", "--pooling", "mean"]}
      ranks:
        {model_path: "{model}", max_num_seqs: 1, max_model_len: 512, args: ["-t", "1", "--rerank"]}
"""
ROUTES = """
routes:
  - {name: vectors, when: {endpoint: [embeddings]}, priority: 9, target: local/vectors}
  - {name: ranks, when: {endpoint: [rerank]}, priority: 9, target: local/ranks}
  - {name: sound, when: {endpoint: [transcriptions, speech]}, priority: 9, target: ears/large}
  - {name: rest, match: [.*], target: local/chat}
"""


def upstreams(ears: str) -> str:
    return UPSTREAMS.replace("{ears}", ears).replace("{model}", str(MODEL))


async def hears(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    if http.path.endswith("/speech"):
        return web.Response(body=SOUND, content_type="audio/mpeg")
    _, _, after = body["form"].partition(b'name="model"\r\n\r\n')
    return web.json_response({"text": after.partition(b"\r\n")[0].decode()})


async def test_sounds_go_both_ways_through_the_gateway(tmp_path: Path) -> None:
    async with provider(hears) as ears:
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams(ears.url))
        async with (
            sidecar(rules) as it,
            openai.AsyncOpenAI(api_key="x", base_url=f"{it.url}/v1", max_retries=0) as c,
        ):
            text = await c.audio.transcriptions.create(model="turnout/auto", file=("a.wav", SOUND))
            assert text.text == "large"
            assert SOUND in ears.raw[-1]
            named = await c.audio.transcriptions.create(model="ears/other", file=("a.wav", b"x"))
            assert named.text == "other"
            speech = await c.audio.speech.create(model="any", input="hello", voice="alloy")
            assert await speech.aread() == SOUND
            with pytest.raises(openai.NotFoundError, match="images move only by a rule"):
                await c.images.generate(model="any", prompt="a cat")
            with pytest.raises(openai.BadRequestError, match="cannot be read"):
                await c.post("/audio/transcriptions", body={"input": 1}, cast_to=object)
            rows = {row.id: row for row in (await c.models.list()).data}
    assert rows["local/vectors"].endpoints[:2] == ["chat", "completions"]  # type: ignore[attr-defined]
    assert "embeddings" in rows["local/vectors"].endpoints  # type: ignore[attr-defined]
    assert "embeddings" not in rows["local/chat"].endpoints  # type: ignore[attr-defined]


@pytest.mark.local
@pytest.mark.timeout(240)
async def test_chat_vectors_and_ranks_of_real_engines_side_by_side(
    tmp_path: Path,
) -> None:
    pytest.importorskip("xllamacpp", reason="the `local` extra is not installed")
    if MODEL is None:
        pytest.skip("the model is not here: run `turnout models pull`")
    rules = write_rules(tmp_path / "rules", ROUTES, upstreams("http://127.0.0.1:9/v1"))
    async with (
        sidecar(rules) as it,
        openai.AsyncOpenAI(api_key="x", base_url=f"{it.url}/v1", max_retries=0, timeout=120) as c,
    ):
        told = await c.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "hi"}], max_tokens=4
        )
        assert told.choices[0].message.content
        texts = ["a cat", "the parliament"]
        vectors = await c.embeddings.create(model="any", input=texts, encoding_format="float")
        near, far = (row.embedding for row in vectors.data)
        assert len(near) == len(far) == 576
        assert near != far
        asked = {"model": "any", "query": "cats?", "documents": ["a cat", "the parliament"]}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{it.url}/v1/rerank", json=asked) as answer,
        ):
            assert answer.headers["x-turnout-target"] == "local/ranks"
            ranks = await answer.json()
        assert sorted(row["index"] for row in ranks["results"]) == [0, 1]
        states = {status.name: status.state for status in it.service.backends.status()}
    assert states == {"local/chat": "ready", "local/vectors": "ready", "local/ranks": "ready"}
