"""What the classifiers behind an HTTP URL share: one client, one deadline, a verdict in any case.

A remote classifier that is late, broken or talks nonsense costs its deadline and nothing else: the
verdict then names no route and says why. Answers are bounded and never logged.
"""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from turnout_rules.decision import Verdict
from turnout_rules.languages import language
from turnout_rules.model import Route
from turnout_rules.normalise import normalise
from turnout_rules.settings import Classifier as ClassifierSettings
from turnout_rules.table import Table
from turnout_sidecar.classifiers.base import ClassifierError, cut
from turnout_sidecar.classifiers.cache import VerdictCache

NONE = "none"
"""The option for texts that fit no route."""
MAX_ANSWER_BYTES = 256 * 1024
DEFAULT_THRESHOLD = 0.5


class Nonsense(Exception):
    """The answer is not what was asked for."""


class Asked(msgspec.Struct, frozen=True):
    """Probabilities by option, `NONE` among them, or a plain choice with one."""

    choice: str
    probabilities: dict[str, float]


class RemoteClassifier(ABC):
    """Everything but the wording of the question, which subclasses put in `_ask`."""

    kind = "remote"

    def __init__(self, settings: ClassifierSettings) -> None:
        """Opens nothing yet. Raises `ClassifierError` when the URL or the key is missing."""
        if not settings.url:
            raise ClassifierError(f"classifier kind {self.kind} needs `url` in turnout.yaml")
        self._settings = settings
        self._key = ""
        if settings.api_key_env:
            self._key = os.environ.get(settings.api_key_env, "")
            if not self._key:
                raise ClassifierError(
                    f"the classifier's key is missing: set {settings.api_key_env}"
                )
        self._cache = VerdictCache(settings.cache_entries)
        self._routes: tuple[Route, ...] = ()
        self._version = ""
        self._headers: dict[str, str] = {}
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def prepare(self, table: Table) -> None:
        """Take the semantic routes as options, all but the default route."""
        default = table.default.name if table.default is not None else None
        self._routes = tuple(r for r in table.semantic_routes if r.name != default)
        names = "\n".join(f"{r.name}\t{_meaning(r)}" for r in self._routes)
        self._version = f"{table.version}\n{names}"

    async def classify(self, text: str, attachments: Sequence[str] = ()) -> Verdict:
        """Ask the server, under the deadline of the settings."""
        started = time.perf_counter_ns()
        text = cut(text, self._settings.max_text_chars)
        if self._is_closed:
            return Verdict(route=None, reason="the classifier is closed")
        if not self._routes:
            return Verdict(route=None, reason="no route has examples or a description")
        if not text.strip():
            return Verdict(route=None, reason="no text to classify")
        context = context_of(text, attachments)
        key = self._cache.key(text, f"{context}{self._version}")
        verdict = self._cache.get(key)
        if verdict is None:
            verdict = await self._answer(text, context)
            if verdict.route is not None:
                self._cache.put(key, verdict)
        elapsed_us = (time.perf_counter_ns() - started) / 1_000
        return msgspec.structs.replace(verdict, elapsed_us=elapsed_us)

    async def close(self) -> None:
        """Close the connections; calls in flight get a verdict without a route."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    def describe(self) -> dict[str, Any]:
        """Kind, server, model, options."""
        return {
            "kind": self.kind,
            "url": self._settings.url,
            "model": self._settings.model,
            "routes": [r.name for r in self._routes],
            "cache_hits": self._cache.hits,
            "cache_misses": self._cache.misses,
        }

    @property
    def threshold(self) -> float:
        """The threshold in force for routes without their own."""
        chosen = self._settings.threshold
        return DEFAULT_THRESHOLD if chosen is None else chosen

    @abstractmethod
    async def _ask(self, text: str, context: dict[str, str]) -> Asked:
        """Put the question about `text`, in the server's own words."""

    async def _answer(self, text: str, context: dict[str, str]) -> Verdict:
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1_000):
                asked = await self._ask(text, context)
        except TimeoutError:
            late = f"{self.kind} classifier late (over {self._settings.timeout_ms} ms)"
            return Verdict(route=None, reason=late)
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            return Verdict(
                route=None, reason=f"{self.kind} classifier unreachable: {_short(error)}"
            )
        except Nonsense as error:
            return Verdict(route=None, reason=f"{self.kind} classifier unusable: {_short(error)}")
        return self._verdict(asked)

    def _verdict(self, asked: Asked) -> Verdict:
        names = {r.name: r.threshold for r in self._routes}
        ranked = sorted(
            ((p, name) for name, p in asked.probabilities.items() if name in names), reverse=True
        )
        none = asked.probabilities.get(NONE, 0.0)
        if asked.choice == NONE or not ranked:
            second, name = ranked[0] if ranked else (0.0, None)
            return Verdict(
                route=None,
                out_of_scope=none,
                runner_up=name,
                runner_up_probability=second,
                reason=f"{self.kind} classifier: none of these ({none:.2f})",
            )
        own = names.get(asked.choice)
        rest = next(((p, name) for p, name in ranked if name != asked.choice), (0.0, None))
        return Verdict(
            route=asked.choice,
            probability=asked.probabilities.get(asked.choice, 0.0),
            threshold=self.threshold if own is None else own,
            runner_up=rest[1],
            runner_up_probability=rest[0],
            out_of_scope=none,
            reason=f"{self.kind} classifier",
        )

    def _connector(self) -> aiohttp.BaseConnector | None:
        """What the session connects with; None: the usual."""
        return None

    async def _post(self, url: str, body: dict[str, Any], key: str) -> Any:
        if self._session is None:
            # Proxy variables point at ourselves: never obey them here.
            self._session = aiohttp.ClientSession(connector=self._connector(), trust_env=False)
        headers = {**self._headers, **({"authorization": f"Bearer {key}"} if key else {})}
        async with self._session.post(
            url, json=body, headers=headers, allow_redirects=False
        ) as answer:
            raw = await answer.content.read(MAX_ANSWER_BYTES)
            while not answer.content.at_eof() and len(raw) < MAX_ANSWER_BYTES:
                raw += await answer.content.read(MAX_ANSWER_BYTES - len(raw))
            if answer.status != 200:
                why = ", the server's model is no decision model" if answer.status == 501 else ""
                raise Nonsense(f"status {answer.status}{why}")
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Nonsense(f"no JSON ({error})") from error


def context_of(text: str, attachments: Sequence[str]) -> dict[str, str]:
    """What is known of a request besides its text: `language` (ISO 639-1), `attachments`."""
    known = {"language": language(normalise(text)), "attachments": ", ".join(attachments)}
    return {name: value for name, value in known.items() if value}


def options(routes: tuple[Route, ...]) -> dict[str, str]:
    """Each route's name with what it is for, and the way out."""
    said = {route.name: _meaning(route) for route in routes}
    return {**said, NONE: "none of these: anything else"}


def _meaning(route: Route) -> str:
    if route.description:
        return route.description
    return "for example: " + "; ".join(example[:80] for example in route.examples[:3])


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:120]
