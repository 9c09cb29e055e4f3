"""The classifier that is switched off: loads nothing, names no route, says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnout_rules.decision import Verdict
from turnout_rules.table import Table


class OffClassifier:
    """Answers that there is no classifier."""

    async def prepare(self, table: Table) -> None:
        """Nothing to get ready."""

    async def classify(self, text: str, attachments: Sequence[str] = ()) -> Verdict:
        """No route, and why."""
        return Verdict(route=None, reason="classifier switched off in the settings")

    async def close(self) -> None:
        """Nothing to let go of."""

    def describe(self) -> dict[str, Any]:
        """Its kind."""
        return {"kind": "off"}
