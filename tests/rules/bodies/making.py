"""Short ways to a `Request`, a `Target` and the recorded requests."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from turnout_rules.model import Model, Target, Upstream
from turnout_rules.reading import Reader
from turnout_rules.request import Request
from turnout_rules.settings import Reading

RECORDED = Path(__file__).parents[2] / "data" / "recorded.jsonl"
READER = Reader(Reading())
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "embeddings": "/v1/embeddings",
}


def read(
    body: dict[str, Any] | bytes | str,
    *,
    endpoint: str = "chat",
    path: str = "",
    headers: dict[str, str] | None = None,
    reader: Reader = READER,
    **more: str,
) -> Request:
    """Read a body as the addon would."""
    if isinstance(body, dict):
        body = json.dumps(body, ensure_ascii=False).encode()
    elif isinstance(body, str):
        body = body.encode()
    return reader.read(
        method="POST", path=path or PATHS[endpoint], headers=headers or {}, body=body, **more
    )


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    """A small chat body."""
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": text}], **fields}


def target(
    base_url: str = "https://api.example.com/v1", model: str = "other-model", **fields: Any
) -> Target:
    """A target; `fields` go to the upstream, those named `model_*` to the model."""
    of_model = {k.removeprefix("model_"): v for k, v in fields.items() if k.startswith("model_")}
    of_upstream = {k: v for k, v in fields.items() if not k.startswith("model_")}
    upstream = Upstream(name="up", base_url=base_url, **of_upstream)
    return Target(f"up/{model}", upstream, Model(name=model, **of_model))


def managed(engine: str, **fields: Any) -> Target:
    """A target that the sidecar runs."""
    return target("", engine=engine, **fields)


@cache
def recorded() -> list[dict[str, Any]]:
    """The recorded requests, with `path` and `host` split off the URI."""
    rows = []
    for line in RECORDED.read_text("utf-8").splitlines():
        row = json.loads(line)
        parts = urlsplit(row["uri"])
        row["path"] = parts.path + (f"?{parts.query}" if parts.query else "")
        row["host"] = parts.netloc
        rows.append(row)
    return rows


def read_recorded(row: dict[str, Any]) -> Request:
    """Read one recorded request."""
    return READER.read(
        method=row["method"],
        path=row["path"],
        headers=row["headers"],
        body=row["body"].encode(),
        host=row["host"],
    )
