"""The two ways to run the addon: under mitmweb to look, under a lean master for speed.

Both run the same addon with the same options. The lean one carries only the addons a proxy needs
and looks up each event's hooks once.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from mitmproxy import addonmanager, exceptions, hooks, master, options
from mitmproxy.addons import (
    core,
    disable_h2c,
    errorcheck,
    next_layer,
    proxyserver,
    termlog,
    tlsconfig,
)
from mitmproxy.tools.web.master import WebMaster

from turnout_addon.addon import Turnout


class LookingMaster(WebMaster):
    """mitmweb with Turnout in it."""

    def __init__(self, opts: options.Options, turnout: Turnout, *extra: object) -> None:
        """The log goes to stderr; stdout is for the ready line."""
        super().__init__(opts, with_termlog=False)
        _log_to_stderr(self)
        self.addons.add(turnout, *extra)


class LeanMaster(master.Master):
    """A headless proxy with nothing in it that a proxy does not need."""

    def __init__(self, opts: options.Options, turnout: Turnout, *extra: object) -> None:
        """`extra` addons come last."""
        super().__init__(opts, with_termlog=False)
        self.addons = CachingAddons(self)
        _log_to_stderr(self)
        self.addons.add(
            core.Core(),
            disable_h2c.DisableH2C(),
            proxyserver.Proxyserver(),
            next_layer.NextLayer(),
            tlsconfig.TlsConfig(),
            errorcheck.ErrorCheck(),
            turnout,
            *extra,
        )


class CachingAddons(addonmanager.AddonManager):
    """Dispatches an event to a list of its hooks instead of asking each addon anew."""

    def __init__(self, owner: master.Master) -> None:
        """An empty chain."""
        super().__init__(owner)  # type: ignore[no-untyped-call]
        # Event name to hooks; emptied whenever the chain changes.
        self._hooks: dict[str, list[Callable[..., Any]]] = {}

    def register(self, addon: object) -> object:
        """As the original; known hooks are forgotten."""
        self._hooks = {}
        return super().register(addon)  # type: ignore[no-untyped-call]

    def remove(self, addon: object) -> None:
        """As the original; known hooks are forgotten."""
        self._hooks = {}
        super().remove(addon)  # type: ignore[no-untyped-call]

    def add(self, *addons: object) -> None:
        """As the original; known hooks are forgotten once the chain is complete."""
        super().add(*addons)  # type: ignore[no-untyped-call]
        self._hooks = {}

    async def trigger_event(self, event: hooks.Hook) -> None:
        """Call the event's hooks in the chain's order; a failing hook does not stop the others."""
        found = self._hooks.get(event.name)
        if found is None:
            found = [call for addon in self.chain for _, call in self._iter_hooks(addon, event)]
            self._hooks[event.name] = found
        for call in found:
            try:
                with addonmanager.safecall():
                    result = call(*event.args())
                    if result is not None and inspect.isawaitable(result):
                        await result
            except exceptions.AddonHalt:
                return


def _log_to_stderr(owner: master.Master) -> None:
    log = termlog.TermLog(sys.stderr)
    owner._termlog_addon = log
    owner.addons.add(log)
