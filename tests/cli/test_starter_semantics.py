"""The starter rules with their real classifier: plain questions stay with the default route, the
requests that the routes are for are still found."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from sidecar.classifier_tables import fetched_models
from turnout_cli.teaching import ready_classifier
from turnout_rules.loading import load_rules
from turnout_rules.request import Request
from turnout_rules.starter import starter_folder

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("fetched_models")]
__all__ = ["fetched_models"]
DATA = Path(__file__).parents[1] / "data" / "everyday.jsonl"
DEFAULT = "default"
MOST_TAKEN = 3
ONE_MISSED_IN = 10


@pytest.fixture(scope="module")
def went() -> dict[tuple[str, str], str]:
    """(where a text belongs, text) to the route it went to, rules and classifier together."""
    return asyncio.run(_decide_all())


async def _decide_all() -> dict[tuple[str, str], str]:
    rules = load_rules(starter_folder())
    classifier, _ = await ready_classifier(rules)
    went = {}
    try:
        for line in DATA.read_text("utf-8").splitlines():
            row = json.loads(line)
            request = Request.from_text(row["text"])
            decision = rules.table.decide(request)
            if decision.wants_classifier:
                verdict = await classifier.classify(request.text)
                decision = rules.table.settle(request, decision, verdict)
            went[row["route"], row["text"]] = decision.route or ""
    finally:
        await classifier.close()
    return went


def test_a_hundred_plain_questions_in_two_languages_stay_with_the_default_route(
    went: dict[tuple[str, str], str],
) -> None:
    asked = {text: route for (belongs, text), route in went.items() if belongs == DEFAULT}
    assert Counter(text.isascii() for text in asked) == {True: 50, False: 50}
    taught = {
        text for route in load_rules(starter_folder()).table.routes for text in route.examples
    }
    assert not taught & set(asked), "what is taught says nothing about what is not"
    taken = {text: route for text, route in asked.items() if route != DEFAULT}
    assert len(taken) <= MOST_TAKEN, taken
    assert asked["what is the capital of france"] == DEFAULT


@pytest.mark.parametrize("name", ["translation", "summary", "chat", "code"])
def test_what_a_route_is_for_is_still_found(went: dict[tuple[str, str], str], name: str) -> None:
    missed = {text: got for (belongs, text), got in went.items() if belongs == name != got}
    count = sum(belongs == name for belongs, _ in went)
    assert count >= 20
    assert len(missed) * ONE_MISSED_IN <= count, missed
