"""The answer to a request that only counts tokens, where nobody else can count them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from turnout_rules.request import Request

COUNT_HEADER = "x-turnout-count"
"""Says who counted: `target` or `estimate`."""


def estimated_count(request: Request) -> bytes:
    """The estimate of a request's input tokens, as its API answers a count."""
    said: dict[str, object] = {"input_tokens": request.input_tokens}
    if request.endpoint == "responses":
        said = {"object": "response.input_tokens", **said}
    return msgspec.json.encode(said)
