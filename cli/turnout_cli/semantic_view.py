"""What the classifier says of one text, for `turnout explain --semantic`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from turnout_rules.decision import Decision

if TYPE_CHECKING:
    from turnout_rules.loading import Rules
    from turnout_rules.request import Request


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The settled decision, and the examples that the text resembles, nearest first."""

    decision: Decision
    nearest: tuple[tuple[str, str, float], ...] = ()
    """(route, or empty for the default route's, example, likeness)"""

    def row(self) -> dict[str, Any]:
        """For JSON: the settled decision's fields, and `nearest`."""
        near = [{"route": r, "text": t, "similarity": s} for r, t, s in self.nearest]
        row: dict[str, Any] = msgspec.to_builtins(self.decision)
        return {**row, "nearest": near}

    def __str__(self) -> str:
        """A few lines for people."""
        from turnout_cli.tables import visible

        decision = self.decision
        where = f"{decision.route} → {decision.target}" if decision.route else decision.target
        lines = [f"  settled   {where}  [{decision.layer}], {decision.reason}"]
        lines += [
            f"  near      {s:.2f} {r or 'default route'}: “{visible(t, 120)}”"
            for r, t, s in self.nearest
        ]
        return "\n".join(lines)


def ask_classifier(rules: Rules, request: Request, decision: Decision) -> Said:
    """Ask the classifier of the settings; raises `ClassifierError`. Blocks: loads the encoder."""
    from turnout_cli.teaching import ready_classifier
    from turnout_sidecar.classifiers.embedded import EmbeddedClassifier

    async def ask() -> Said:
        classifier, _ = await ready_classifier(rules)
        try:
            verdict = await classifier.classify(request.text, request.attachments)
            settled = rules.table.settle(request, decision, verdict)
            near = []
            if isinstance(classifier, EmbeddedClassifier):
                near = await classifier.nearest(request.text)
            rows = tuple((n.route or "", n.text, n.similarity) for n in near)
            return Said(decision=settled, nearest=rows)
        finally:
            await classifier.close()

    return asyncio.run(ask())
