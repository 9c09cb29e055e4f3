"""Bodies that cannot be read pass to their origin untouched; nothing raises, nothing stalls."""

from __future__ import annotations

import gzip
import json
import ssl
import zlib
from typing import Any

import httpx2
import pytest

GOOD = json.dumps({"model": "m", "messages": [{"role": "user", "content": "debug"}]}).encode()
BAD = {
    "empty": (b"", {}),
    "not-json": (b"{nope", {}),
    "not-an-object": (b'["debug"]', {}),
    "deep": (b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", {}),
    "wrongly-compressed": (GOOD, {"content-encoding": "gzip"}),
    "unknown-encoding": (GOOD, {"content-encoding": "rot13"}),
    "bomb": (gzip.compress(gzip.compress(b" " * (300 << 20))), {"content-encoding": "gzip, gzip"}),
    "cut-off": (zlib.compress(GOOD)[:-6], {"content-encoding": "deflate"}),
    "lone-surrogate": (GOOD.replace(b"debug", rb"\ud800 debug"), {}),
    "nan": (GOOD.replace(b"{", b'{"top_p": NaN, ', 1), {}),
    "duplicate-model": (GOOD.replace(b"{", b'{"model": "x", ', 1), {}),
    "no-model": (b'{"messages":[{"role":"user","content":"debug"}]}', {}),
    "messages-of-wrong-type": (b'{"model":"m","messages":"debug"}', {}),
    "fifty-megabytes": (b'{"x":"' + b"y" * (50 << 20) + b'"', {}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_body_that_cannot_be_read_passes_untouched(setup: Any, name: str) -> None:
    body, headers = BAD[name]
    context = ssl.create_default_context(cafile=str(setup.proxy.bundle))
    with httpx2.Client(proxy=setup.proxy.url, verify=context, trust_env=False, timeout=30.0) as c:
        answer = c.post(f"{setup.origin.url}/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["x-turnout-target"] == "pass"
    assert setup.origin.last.body == body
    assert not setup.other.seen
