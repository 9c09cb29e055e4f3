"""The rules in force: a snapshot that requests hold on to, replaced whole when the folder changes.

Polls the folder in a worker thread. A broken folder leaves the old snapshot in force and says why;
a request in flight keeps the snapshot it began with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from turnout_rules.credentials import Keyring
from turnout_rules.effects import effects_of
from turnout_rules.loading import Rules, load_rules, settle_memory
from turnout_rules.problems import RulesError
from turnout_rules.reading import Reader
from turnout_rules.settings import Settings
from turnout_rules.table import Table
from turnout_rules.turns import Turns
from turnout_rules.watching import RulesWatch
from turnout_sidecar.metrics import Metrics
from turnout_sidecar.passing import origin_trust

log = logging.getLogger(__name__)
POLL_S = 0.4


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rules and what is derived from them; replaced whole."""

    rules: Rules
    reader: Reader
    keyring: Keyring
    turns: Turns
    """What these rules decided for turns that go on."""
    origin_trust: ssl.SSLContext | None = None
    """For origins of passed requests; None: the public roots alone."""

    @property
    def table(self) -> Table:
        """The routing table."""
        return self.rules.table

    @property
    def settings(self) -> Settings:
        """The settings in force; what a restart is needed for stays as it was at the start."""
        return self.rules.settings


def take_snapshot(rules: Rules) -> Snapshot:
    """Read the keys and build the reader that `rules` ask for; reads files."""
    keyring = Keyring(rules.table.upstreams, os.environ)
    return Snapshot(
        rules=rules,
        reader=Reader(rules.settings.reading),
        keyring=keyring,
        turns=Turns(rules.table, rules.settings.reading),
        origin_trust=_origin_trust(rules),
    )


def _origin_trust(rules: Rules) -> ssl.SSLContext | None:
    try:
        return origin_trust(rules.settings.proxy)
    except OSError as error:
        # The proxy refuses to start with it; the gateway serves targets all the same.
        log.warning("proxy.upstream_ca cannot be used: %s", error.strerror or error)
        return None


class LiveRules:
    """Owns `current`; only `watch` replaces it."""

    def __init__(self, folder: Path, metrics: Metrics) -> None:
        """Load `folder`; raises `RulesError` when it cannot be used."""
        self._folder = folder
        self._metrics = metrics
        self._watch = RulesWatch(folder)
        self.current = take_snapshot(load_rules(folder))
        self._began = self.current.settings
        self._waiting: list[str] = []
        """What was last said about settings that do not count yet."""
        self.problem = ""
        """Why the folder as it is now is not in force; "" when it is."""
        self._listeners: list[Callable[[Snapshot], None]] = []
        metrics.rules_ok.set(1)

    def on_change(self, listener: Callable[[Snapshot], None]) -> None:
        """Call `listener` in the event loop with every new snapshot."""
        self._listeners.append(listener)

    async def watch(self) -> None:
        """Follow the folder until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(POLL_S)
            try:
                change = await asyncio.to_thread(self._poll, clock())
            except Exception:
                log.exception("the rules folder cannot be watched")
                continue
            if change is not None:
                self._take(change)
                await asyncio.to_thread(settle_memory)

    def _poll(self, now: float) -> Snapshot | RulesError | None:
        found = self._watch.poll(now)
        if not isinstance(found, Rules):
            return found
        effects = effects_of(found.settings, began=self._began)
        waiting = effects.sentences(("sidecar", "engines"))
        for sentence in waiting:
            if sentence not in self._waiting:
                log.warning("%s", sentence)
        self._waiting = waiting
        return take_snapshot(replace(found, settings=effects.settings))

    def _take(self, change: Snapshot | RulesError) -> None:
        if isinstance(change, RulesError):
            self.problem = str(change)
            self._metrics.reloads.labels("rejected").inc()
            self._metrics.rules_ok.set(0)
            log.error("the changed rules are not used, the old ones stay:\n%s", change)
            return
        self.current = change
        self.problem = ""
        self._metrics.reloads.labels("loaded").inc()
        self._metrics.rules_ok.set(1)
        log.info("rules reloaded: %d routes", len(change.table.routes))
        for listener in self._listeners:
            listener(change)
