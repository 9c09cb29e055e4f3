"""Hot reload: looks at the rules folder four times a second, in a worker thread, and swaps.

A broken file changes nothing but what is said. Never blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from turnout_rules.loading import Rules, settle_memory
from turnout_rules.problems import RulesError
from turnout_rules.watching import RulesWatch

POLL_INTERVAL_S = 0.25

logger = logging.getLogger(__name__)


async def follow(
    watch: RulesWatch,
    *,
    on_rules: Callable[[Rules], None],
    on_error: Callable[[RulesError], None],
) -> None:
    """Run until cancelled; every new version goes to `on_rules`, every broken one to `on_error`."""
    is_failing = False
    while True:
        await asyncio.sleep(POLL_INTERVAL_S)
        try:
            outcome = await asyncio.to_thread(watch.poll, time.monotonic())
            if isinstance(outcome, RulesError):
                on_error(outcome)
            elif outcome is not None:
                on_rules(outcome)
                await asyncio.to_thread(settle_memory)
            is_failing = False
        except Exception:
            # The watch must survive whatever a folder does; once per series is enough to say so.
            if not is_failing:
                logger.exception("turnout: cannot look at the rules folder; older rules in force")
            is_failing = True
