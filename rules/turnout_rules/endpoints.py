"""Which API a request speaks, told by the end of its path, whatever base stands before it.

Providers put the same endpoints under different bases (`/v1`, `/openai/v1`, `/v1beta/openai`, `/`,
`/openai/deployments/{name}`, `/backend-api/codex`). What is not named here is never read or moved.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args
from urllib.parse import unquote

import msgspec

EndpointName = Literal[
    "chat",
    "completions",
    "responses",
    "messages",
    "embeddings",
    "rerank",
    "speech",
    "transcriptions",
    "translations",
    "images",
    "image_edits",
]
ENDPOINTS: tuple[EndpointName, ...] = get_args(EndpointName)
MOVED_BY_NAME: frozenset[str] = frozenset(ENDPOINTS[4:])
"""Vectors, ranks, sounds and pictures of one model are not those of another: such requests move
only by a rule that names their endpoint."""
UNSIZED: frozenset[str] = frozenset(ENDPOINTS[5:])
"""Their bytes tell nothing of the context that they need: many documents, sounds, pictures."""
FORMS: frozenset[str] = frozenset(("transcriptions", "translations", "image_edits"))
"""Come as `multipart/form-data`."""


class Endpoint(msgspec.Struct, frozen=True):
    """One API and how the path named it."""

    name: EndpointName
    suffix: str
    """What is joined to a target's base URL."""
    path_model: str = ""
    """Azure's deployment name: the model when the path names it."""


# Longer endings first: `/chat/completions` also ends in `/completions`.
_SUFFIXES: tuple[tuple[str, EndpointName], ...] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
    ("/responses", "responses"),
    ("/messages", "messages"),
    ("/embeddings", "embeddings"),
    # llama.cpp's other name; every engine knows the one after it.
    ("/reranking", "rerank"),
    ("/rerank", "rerank"),
    ("/audio/speech", "speech"),
    ("/audio/transcriptions", "transcriptions"),
    ("/audio/translations", "translations"),
    ("/images/generations", "images"),
    ("/images/edits", "image_edits"),
)

SUFFIX_OF: dict[str, str] = {name: suffix for suffix, name in _SUFFIXES}
"""Endpoint name to what is joined to a base URL."""

COUNT_SUFFIX = {"messages": "/messages/count_tokens", "responses": "/responses/input_tokens"}
"""Endpoint name to what counts the input tokens of such a request (Anthropic's and OpenAI's)."""

# Below these a familiar ending means something else: `/v1/threads/{id}/messages` belongs to the
# assistants API, `/v1/chat/completions/{id}/messages` lists a stored completion.
_FOREIGN_SEGMENTS = frozenset(
    (
        *("assistants", "audio", "batches", "chat", "completions", "conversations", "engines"),
        *("evals", "files", "fine_tuning", "images", "messages", "realtime", "responses"),
        *("threads", "uploads", "vector_stores"),
    )
)


def classify(method: str, path: str) -> Endpoint | None:
    """The endpoint of a request, or None: pass it untouched. `path` may carry a query."""
    if method != "POST":
        return None
    return _classify_path(path.partition("?")[0])


def counted_path(path: str) -> str:
    """Where the request would go whose tokens one to `path` counts; empty: it counts none."""
    place, mark, query = path.partition("?")
    for name, suffix in COUNT_SUFFIX.items():
        if place.endswith(suffix):
            return place.removesuffix(suffix) + SUFFIX_OF[name] + mark + query
    return ""


@lru_cache(maxsize=512)
def _classify_path(path: str) -> Endpoint | None:
    path = path.rstrip("/")
    for suffix, name in _SUFFIXES:
        if path.endswith(suffix):
            segments = path.removesuffix(suffix).split("/")
            deployment = _deployment(segments)
            named = segments[:-1] if deployment else segments
            if not _FOREIGN_SEGMENTS.isdisjoint(named):
                return None
            return Endpoint(name, SUFFIX_OF[name], deployment)
    return None


def _deployment(segments: list[str]) -> str:
    if len(segments) >= 2 and segments[-2] == "deployments":
        return unquote(segments[-1])
    return ""
