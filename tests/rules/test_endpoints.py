"""Which paths are read at all."""

from __future__ import annotations

import pytest

from turnout_rules.endpoints import classify, counted_path

SERVED = [
    ("/v1/chat/completions", "chat"),
    ("/chat/completions", "chat"),
    ("/openai/v1/chat/completions", "chat"),
    ("/v1beta/openai/chat/completions", "chat"),
    ("/api/v1/chat/completions", "chat"),
    ("/beta/chat/completions", "chat"),
    ("/novita/v3/openai/chat/completions", "chat"),
    ("/models/org/name/v1/chat/completions", "chat"),
    ("/v1/completions", "completions"),
    ("/beta/completions", "completions"),
    ("/v1/responses", "responses"),
    ("/backend-api/codex/responses", "responses"),
    ("/openai/v1/responses", "responses"),
    ("/v1/messages?beta=true", "messages"),
    ("/anthropic/v1/messages", "messages"),
    ("/v1/embeddings", "embeddings"),
    ("/v1/chat/completions/", "chat"),
    ("/v1/rerank", "rerank"),
    ("/v2/rerank", "rerank"),
    ("/rerank", "rerank"),
    ("/v1/reranking", "rerank"),
    ("/v1/audio/speech", "speech"),
    ("/openai/v1/audio/transcriptions", "transcriptions"),
    ("/v1/audio/translations", "translations"),
    ("/v1/images/generations", "images"),
    ("/v1/images/edits", "image_edits"),
]
UNTOUCHED = [
    "/v1/models",
    "/v1/files",
    "/v1/responses/resp_123",
    "/v1/responses/resp_123/cancel",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/messages/count_tokens",
    "/v1/messages/batches",
    "/v1/realtime",
    "/v1/images/variations",
    "/v1/audio/voices",
    "/v1/files/rerank",
    "/v1/threads/rerank",
    "/v1/audio/x/rerank",
    "/v1/assistants",
    "/v1/threads",
    "/v1/threads/thread_1/messages",
    "/v1/threads/thread_1/runs",
    "/v1/chat/completions/chatcmpl-1/messages",
    "/v1/conversations/conv_1/responses",
    "/v1/notchat/completionsx",
    "/",
    "",
]


@pytest.mark.parametrize(("path", "name"), SERVED)
def test_an_endpoint_is_told_by_the_end_of_its_path(path: str, name: str) -> None:
    endpoint = classify("POST", path)
    assert endpoint is not None
    assert endpoint.name == name


@pytest.mark.parametrize("path", UNTOUCHED)
def test_other_endpoints_are_left_alone(path: str) -> None:
    assert classify("POST", path) is None


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "post"])
def test_only_post_is_read(method: str) -> None:
    assert classify(method, "/v1/chat/completions") is None


def test_azure_names_the_model_in_the_path() -> None:
    endpoint = classify("POST", "/openai/deployments/my%20gpt/chat/completions?api-version=1")
    assert endpoint is not None
    assert (endpoint.name, endpoint.suffix) == ("chat", "/chat/completions")
    assert endpoint.path_model == "my gpt"


def test_other_names_of_an_endpoint_reach_every_engine_by_the_usual_one() -> None:
    endpoint = classify("POST", "/v1/reranking")
    assert endpoint is not None
    assert endpoint.suffix == "/rerank"


def test_azure_deployments_hear_and_draw() -> None:
    for path in ("audio/transcriptions", "images/generations"):
        endpoint = classify("POST", f"/openai/deployments/mine/{path}?api-version=1")
        assert endpoint is not None
        assert (endpoint.suffix, endpoint.path_model) == (f"/{path}", "mine")


def test_a_deployment_may_be_called_like_a_resource() -> None:
    endpoint = classify("POST", "/openai/deployments/chat/completions")
    assert endpoint is None or endpoint.path_model in ("", "chat")
    named = classify("POST", "/openai/deployments/files/chat/completions")
    assert named is not None
    assert named.path_model == "files"


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        ("/v1/messages/count_tokens?beta=true", "/v1/messages?beta=true"),
        ("/anthropic/v1/messages/count_tokens", "/anthropic/v1/messages"),
        ("/v1/responses/input_tokens", "/v1/responses"),
        ("/v1/responses/input_tokens/", ""),
        ("/v1/messages", ""),
        ("/v1/messages?next=/messages/count_tokens", ""),
        ("/v1/chat/completions/count_tokens", ""),
    ],
)
def test_what_only_counts_names_the_request_it_counts(path: str, counted: str) -> None:
    assert counted_path(path) == counted
    assert classify("POST", path) is None or not counted
