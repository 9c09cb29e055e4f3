"""The embedded classifier: the sentence encoder and a head trained on the table's examples.

The event loop only looks into the cache; encoding and judging happen on one worker thread, first
come first served, so many requests share the encoder fairly. Training happens in another process.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from turnout_rules.decision import Verdict
from turnout_rules.settings import Classifier as ClassifierSettings
from turnout_rules.table import Table
from turnout_sidecar.classifiers.base import ClassifierError, cut
from turnout_sidecar.classifiers.cache import VerdictCache
from turnout_sidecar.classifiers.encoder import PACKAGES, Encoder, Vectors, meaning
from turnout_sidecar.classifiers.head import Head, Near
from turnout_sidecar.classifiers.store import Lesson, is_writable, load, path_for
from turnout_sidecar.classifiers.training import Progress, train_apart
from turnout_sidecar.model_store import path_of

log = logging.getLogger(__name__)
MODEL = "sentence-encoder"


class _State(msgspec.Struct, frozen=True):
    """What a table made of the classifier; replaced whole."""

    head: Head
    thresholds: dict[str, float]
    key: str


class EmbeddedClassifier:
    """Owns the encoder, its thread, the cache, and the state now in force."""

    def __init__(self, settings: ClassifierSettings, model: Path) -> None:
        """Load the encoder (about a second, blocking); `prepare` must follow."""
        self._settings = settings
        self._model = model
        self._encoder = Encoder(model, threads=settings.threads, max_chars=settings.max_text_chars)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="classifier")
        self._cache = VerdictCache(settings.cache_entries)
        self._state: _State | None = None
        self._is_closed = False
        self._training: asyncio.Task[None] | None = None

    async def prepare(self, table: Table, progress: Progress | None = None) -> None:
        """Train for `table`, or take the head trained earlier for the same examples."""
        lesson = Lesson.of(table, self._settings.max_text_chars)
        state = self._state
        if state is not None and state.head.digest == lesson.digest:
            head = state.head
        else:
            head = await self._head(lesson, progress)
        own = {r.name: r.threshold for r in table.semantic_routes if r.threshold is not None}
        self._state = _State(head=head, thresholds=own, key=f"{lesson.digest}{table.version}")

    async def classify(self, text: str, attachments: Sequence[str] = ()) -> Verdict:
        """The verdict on `text`; from the cache where the text is known. Texts alone count here."""
        started = time.perf_counter_ns()
        state = self._state
        if state is None:
            return Verdict(route=None, reason="the classifier is still being trained")
        text = cut(text, self._settings.max_text_chars)
        if not text.strip():
            return Verdict(route=None, reason="no text to classify")
        key = self._cache.key(text, state.key)
        if (known := self._cache.get(key)) is not None:
            return msgspec.structs.replace(known, elapsed_us=_since(started))
        if self._is_closed:
            return Verdict(route=None, reason="the classifier is closed")
        loop = asyncio.get_running_loop()
        verdict = await loop.run_in_executor(self._worker, self._judge, text, state)
        self._cache.put(key, verdict)
        return msgspec.structs.replace(verdict, elapsed_us=_since(started))

    async def nearest(self, text: str, count: int = 5) -> list[Near]:
        """The examples that lie nearest to `text`, for people."""
        state = self._state
        if state is None or self._is_closed or not state.head.texts:
            return []
        text = cut(text, self._settings.max_text_chars)
        loop = asyncio.get_running_loop()
        reading = await loop.run_in_executor(self._worker, self._encoder.encode, text)
        return state.head.nearest(text, reading, count)

    async def encode(self, texts: list[str]) -> Vectors:
        """A sentence vector a text, [n, 512], for the teaching tools."""
        loop = asyncio.get_running_loop()
        vectors, _ = await loop.run_in_executor(self._worker, self._encoder.encode_all, texts)
        return meaning(vectors)

    async def close(self) -> None:
        """Take no more work; what is queued still gets its verdict."""
        self._is_closed = True
        if self._training is not None:
            self._training.cancel()
        await asyncio.to_thread(self._worker.shutdown, wait=True)

    def describe(self) -> dict[str, Any]:
        """Kind, model, head and cache in plain facts."""
        state = self._state
        facts: dict[str, Any] = {"kind": "embedded", "model": MODEL, "is_ready": state is not None}
        if state is not None:
            facts |= {
                "routes": list(state.head.routes),
                "examples": state.head.examples,
                "threshold": self.threshold,
                "cache_hits": self._cache.hits,
                "cache_misses": self._cache.misses,
            }
        return facts

    @property
    def threshold(self) -> float:
        """The threshold in force for routes without their own."""
        if self._settings.threshold is not None:
            return self._settings.threshold
        return self._state.head.threshold if self._state is not None else 0.5

    def _judge(self, text: str, state: _State) -> Verdict:
        reading = self._encoder.encode(text)
        return state.head.judge(
            text, reading, threshold=self._settings.threshold, own=state.thresholds
        )

    async def _head(self, lesson: Lesson, progress: Progress | None) -> Head:
        path = path_for(lesson)
        try:
            return await asyncio.to_thread(load, path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.info("the trained head %s is unusable (%s) and is trained again", path, error)
        if self._is_closed:
            raise ClassifierError("the classifier is closed")
        with tempfile.TemporaryDirectory(prefix="turnout-head-") as spare:
            if not await asyncio.to_thread(is_writable, path.parent):
                log.info("%s cannot be written: the trained head is not kept", path.parent)
                path = Path(spare, path.name)
            self._training = asyncio.create_task(train_apart(lesson, self._model, path, progress))
            try:
                await self._training
            finally:
                self._training = None
            return await asyncio.to_thread(load, path)


def build_embedded(settings: ClassifierSettings) -> EmbeddedClassifier:
    """The classifier with the model of the models folder; fetches nothing."""
    path = path_of(MODEL)
    if path is None:
        raise ClassifierError(
            "the sentence encoder is not here, or not whole: "
            f"run `turnout models pull` (and {PACKAGES})"
        )
    return EmbeddedClassifier(settings, path)


def _since(started_ns: int) -> float:
    return (time.perf_counter_ns() - started_ns) / 1_000
