"""`turnout demo`: the whole product in one minute, on free ports, with nothing left behind.

Five requests go to `https://api.openai.com/v1` through the proxy; the rules send all of them to the
local model, so no key is needed and nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turnout_cli.environment import proxy_environment, write_bundle, write_trust_store
from turnout_cli.launching import Launch, LaunchError, Running, launched
from turnout_rules.starter import starter_files, write_files

if TYPE_CHECKING:
    import aiohttp

# The four requests of the source article, and where each belongs; the last one is streamed.
REQUESTS = (
    ("请把这段翻译成英文", "translation", False),
    ("帮我debug这个函数", "code", False),
    ("写一份本周工作总结", "summary", False),
    ("你好今天天气如何", "chat", False),
    ("Translate to French: good morning, how are you?", "translation", True),
)
URL = "https://api.openai.com/v1/chat/completions"
# A first request also starts the engine.
ANSWER_TIMEOUT_S = 120.0
MAX_TOKENS = 24
TABLE_WIDTH = 124


@dataclass(frozen=True)
class Outcome:
    """One row of the table."""

    text: str
    is_streamed: bool
    expected: str
    route: str
    target: str
    layer: str
    decision_us: str
    first_token_ms: float
    answer: str

    @property
    def is_right(self) -> bool:
        """Routed as expected, to the local model, and answered."""
        return (
            self.route == self.expected and self.target.startswith("local/") and bool(self.answer)
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo takes no choices but where its log goes."""
    parser.add_argument("--log", type=Path, help="keep the planes' log in this file")


def run(args: argparse.Namespace) -> int:
    """0 only if every request went where it should and was answered."""
    with tempfile.TemporaryDirectory(prefix="turnout-demo-") as folder:
        rules = Path(folder) / "rules"
        write_files(rules, starter_files())
        log = args.log or Path(folder) / "planes.log"
        launch = Launch(rules=rules, port=0, base_url_port=0, web_port=0, sidecar_port=0, log=log)
        print("Starting proxy, mitmweb and sidecar on free ports …", flush=True)
        try:
            outcomes = asyncio.run(_demonstrate(launch))
        except LaunchError as error:
            print(f"turnout: {error}\n{log.read_text(errors='replace')[-4000:]}", file=sys.stderr)
            return 1
    _print_table(outcomes)
    wrong = [outcome for outcome in outcomes if not outcome.is_right]
    for outcome in wrong:
        print(f"not as expected ({outcome.expected}): {outcome}", file=sys.stderr)
    print("Everything is shut down again.")
    return 1 if wrong else 0


async def _demonstrate(launch: Launch) -> list[Outcome]:
    async with launched(launch) as (_, running):
        print(f"mitmweb would show it all at {running.web_url}", flush=True)
        async with _client(running) as client:
            return [await _ask(client, *request) for request in REQUESTS]


def _client(running: Running) -> aiohttp.ClientSession:
    """An HTTP client as a tool has it: it knows of the proxy by the environment alone."""
    import aiohttp

    ca_cert = Path(running.ca_cert)
    bundle = write_bundle(ca_cert)
    store = write_trust_store(bundle)
    os.environ |= proxy_environment(
        os.environ, port=running.proxy_port, ca_cert=ca_cert, bundle=bundle, trust_store=store
    )
    return aiohttp.ClientSession(
        trust_env=True,
        # aiohttp made its own context at import, before SSL_CERT_FILE was set.
        connector=aiohttp.TCPConnector(ssl=ssl.create_default_context()),
        timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S),
        headers={"authorization": "Bearer demo-key-that-never-leaves"},
    )


async def _ask(
    client: aiohttp.ClientSession, text: str, expected: str, is_streamed: bool
) -> Outcome:
    import aiohttp

    started = time.perf_counter()
    first_token = 0.0
    answer = ""
    headers: dict[str, str] = {}
    try:
        async for piece in _pieces(client, text, headers, is_streamed=is_streamed):
            first_token = first_token or time.perf_counter() - started
            answer += piece
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError) as error:
        answer = ""
        print(f"{text}: {error or type(error).__name__}", file=sys.stderr)
    return Outcome(
        text=text,
        is_streamed=is_streamed,
        expected=expected,
        route=headers.get("x-turnout-route", "-"),
        target=headers.get("x-turnout-target", "-"),
        layer=headers.get("x-turnout-layer", "-"),
        decision_us=headers.get("x-turnout-decision-us", "-"),
        first_token_ms=first_token * 1000,
        answer=" ".join(answer.split()),
    )


async def _pieces(
    client: aiohttp.ClientSession, text: str, headers: dict[str, str], *, is_streamed: bool
) -> AsyncIterator[str]:
    """The answer as it comes, in one piece if it is not streamed; fills in its `headers`."""
    asked = {
        "model": "gpt-4o-mini",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": MAX_TOKENS,
        "stream": is_streamed,
    }
    async with client.post(URL, json=asked) as response:
        headers.update({name.lower(): value for name, value in response.headers.items()})
        if not response.ok:
            raise ValueError(f"{response.status} {(await response.text())[:300]}")
        if not is_streamed:
            yield (await response.json())["choices"][0]["message"]["content"] or ""
            return
        async for line in response.content:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    if content := choice["delta"].get("content"):
                        yield content


def _print_table(outcomes: list[Outcome]) -> None:
    from rich.table import Table

    from turnout_cli.tables import print_table

    print("Five requests to https://api.openai.com/v1, through HTTPS_PROXY:")
    table = Table(box=None, pad_edge=False)
    table.add_column("request", max_width=30, no_wrap=True)
    for column in ("route", "target", "layer"):
        table.add_column(column, no_wrap=True)
    table.add_column("decision µs", justify="right")
    table.add_column("first token ms", justify="right")
    table.add_column("answer starts", max_width=30, no_wrap=True)
    for row in outcomes:
        figures = (row.decision_us, f"{row.first_token_ms:.0f}")
        request = "(streamed) " * row.is_streamed + row.text
        table.add_row(request, row.route, row.target, row.layer, *figures, row.answer)
    print_table(table, width=TABLE_WIDTH)
