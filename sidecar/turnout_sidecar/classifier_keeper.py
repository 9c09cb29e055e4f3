"""Keeps the classifier that the settings name, taught by the rules in force.

A new one is made and taught aside and then swapped; until then the one before serves. One that must
not be asked any more (switched off, or its texts would go elsewhere) is let go at the save.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from turnout_rules.settings import Classifier as ClassifierSettings
from turnout_sidecar.deciding import Decider
from turnout_sidecar.live_rules import LiveRules, Snapshot

if TYPE_CHECKING:
    from turnout_sidecar.classifiers.base import Classifier

log = logging.getLogger(__name__)
RETRY_S = 60.0
"""A classifier that cannot work may be able to later: models are fetched, disks emptied."""
SWITCHED_OFF = "switched off in the settings"


class ClassifierKeeper:
    """Run `keep` as a task, tell `take` of every new snapshot, `close` at the end."""

    def __init__(self, live: LiveRules, decider: Decider) -> None:
        """Nothing is made yet."""
        self._live = live
        self._decider = decider
        self.settled = asyncio.Event()
        """Set once the classifier is ready, off or known not to work."""
        self.socket = ""
        """The sidecar's own, by which a chat model among the targets is asked."""
        # The newest classifier and what it was made of; the decider may still ask the one before.
        self._newest: Classifier | None = None
        self._made_of: ClassifierSettings | None = None
        # Set by a save, awaited by `keep`, so that quick edits teach once.
        self._has_news = asyncio.Event()

    def take(self, snapshot: Snapshot) -> None:
        """New rules or settings; what must stop at once stops here."""
        chosen = snapshot.settings.classifier
        if self._made_of is not None and _place(self._made_of) != _place(chosen):
            self._decider.classifier = None
            self._decider.classifier_problem = "starting"
        if chosen.kind == "off":
            self._decider.classifier = None
            self._decider.classifier_problem = SWITCHED_OFF
        self._has_news.set()

    async def keep(self) -> None:
        """Make and teach for each new table or setting, until cancelled."""
        self._decider.classifier_problem = "starting"
        while True:
            self._has_news.clear()
            chosen = self._live.current.settings.classifier
            problem = await self._renew(chosen)
            is_off = chosen.kind == "off"
            if problem and problem != self._decider.classifier_problem and not is_off:
                state = "off" if self._decider.classifier is None else "still the one before"
                log.warning("the classifier is %s: %s", state, problem)
            self._decider.classifier_problem = problem
            self.settled.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if problem and not is_off else None):
                    await self._has_news.wait()

    async def close(self) -> None:
        """Let go of the classifiers."""
        for classifier in {self._newest, self._decider.classifier} - {None}:
            with contextlib.suppress(Exception):
                await classifier.close()  # type: ignore[union-attr]

    async def _renew(self, chosen: ClassifierSettings) -> str:
        """Let go of what is not asked any more, make what is wanted, teach it; or why not."""
        if chosen != self._made_of:
            await self._let_go(self._newest, unless=self._decider.classifier)
            self._newest = self._made_of = None
        if chosen.kind == "off":
            return SWITCHED_OFF
        try:
            from turnout_sidecar.classifiers import build_classifier

            if self._newest is None:
                settings = self._live.current.settings
                self._newest = await asyncio.to_thread(
                    build_classifier, settings, socket=self.socket
                )
                self._made_of = settings.classifier
            await self._newest.prepare(self._live.current.table)
        except Exception as error:
            return str(error) or type(error).__name__
        if self._live.current.settings.classifier != self._made_of:
            return "starting"  # saved anew meanwhile
        before, self._decider.classifier = self._decider.classifier, self._newest
        await self._let_go(before, unless=self._newest)
        return ""

    async def _let_go(self, one: Classifier | None, *, unless: Classifier | None) -> None:
        if one is None or one is unless:
            return
        try:
            await one.close()
        except Exception:
            log.exception("closing a classifier failed")


def _place(settings: ClassifierSettings) -> tuple[str, str, str, str]:
    """Who is asked: another one must not get texts that the settings no longer send there."""
    return settings.kind, settings.url, settings.model, settings.api_key_env
