"""The intercept list and origins."""

from __future__ import annotations

import re

import pytest

from turnout_addon.hosts import InterceptList, Origin, parse_origin


@pytest.mark.parametrize(
    ("entry", "host", "port", "covered"),
    [
        ("api.openai.com", "api.openai.com", 443, True),
        ("api.openai.com", "API.OpenAI.com", 443, True),
        ("API.openai.com", "api.openai.com", 8443, True),
        ("api.openai.com", "evil-api.openai.com", 443, False),
        ("api.openai.com", "api.openai.com.evil.example", 443, False),
        ("api.openai.com", "apixopenai.com", 443, False),
        ("*.openai.azure.com", "mine.openai.azure.com", 443, True),
        ("*.openai.azure.com", "a.b.openai.azure.com", 443, True),
        ("*.openai.azure.com", "openai.azure.com", 443, False),
        ("*.openai.azure.com", "xopenai.azure.com", 443, False),
        ("localhost:8443", "localhost", 8443, True),
        ("localhost:8443", "localhost", 443, False),
    ],
)
def test_what_an_entry_covers(entry: str, host: str, port: int, covered: bool) -> None:
    listed = InterceptList([entry])
    assert listed.covers(host, port) is covered
    asked = f"{host.lower()}:{port}"
    assert any(re.search(p, asked) for p in listed.patterns()) is covered


def test_an_empty_list_opens_nothing() -> None:
    empty = InterceptList([])
    assert not empty.covers("api.openai.com", 443)
    assert not any(re.search(p, "api.openai.com:443") for p in empty.patterns())


@pytest.mark.parametrize(
    ("url", "origin", "header"),
    [
        ("https://api.openai.com", Origin("https", "api.openai.com", 443), "api.openai.com"),
        ("http://127.0.0.1:8000/v1/", Origin("http", "127.0.0.1", 8000, "/v1"), "127.0.0.1:8000"),
        ("http://[::1]:9/x", Origin("http", "::1", 9, "/x"), "[::1]:9"),
        ("https://host:80", Origin("https", "host", 80), "host:80"),
    ],
)
def test_an_origin_is_read_and_named(url: str, origin: Origin, header: str) -> None:
    assert parse_origin(url) == origin
    assert origin.host_header == header


@pytest.mark.parametrize("url", ["ftp://x", "api.openai.com", "https://", ""])
def test_what_is_no_origin_is_told(url: str) -> None:
    with pytest.raises(ValueError, match="is no http or https URL"):
        parse_origin(url)
