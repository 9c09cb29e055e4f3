"""What every classifier offers, and how a text is cut before one sees it.

A classifier names a route or says that none fits; it never picks a target and never raises for a
strange text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from turnout_rules.decision import Verdict
from turnout_rules.table import Table


class Classifier(Protocol):
    """The semantic layer's one interface."""

    async def prepare(self, table: Table) -> None:
        """Get ready for `table` aside, then swap; the old state serves until then."""

    async def classify(self, text: str, attachments: Sequence[str] = ()) -> Verdict:
        """The most probable route for `text` under the table last prepared.

        `attachments` (of image, audio, file) come with the text; not every classifier hears them.
        """

    async def close(self) -> None:
        """Let go of everything; calls in flight still get a verdict."""

    def describe(self) -> dict[str, Any]:
        """Plain facts for `/healthz` and people."""


class ClassifierError(Exception):
    """A classifier cannot work; the message says why and what to do."""


def cut(text: str, max_chars: int) -> str:
    """Head and tail of a long text (what is asked stands at one of its ends), as one sees it.

    Characters that show nothing are dropped, so they cannot make a text look like another one.
    """
    if len(text) > max_chars:
        half = max_chars // 2
        text = f"{text[:half]} {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(c for c in text if c.isprintable() or c.isspace())
