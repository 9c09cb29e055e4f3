"""Examples that teach the wrong thing: the same text in two routes, or one nearer to another route.

Judged by what the classifier would say of each example had it not been taught it; changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout_rules.normalise import normalise
from turnout_rules.problems import Problem
from turnout_rules.table import Table

if TYPE_CHECKING:
    from turnout_sidecar.classifiers.embedded import EmbeddedClassifier

MIN_LIKENESS = 0.6
"""Cosine to an example of another route below which no warning is worth it,"""
MARGIN = 0.15
"""and how much nearer that one must be than the best of its own route."""


def contradictions(table: Table) -> list[Problem]:
    """Examples that, normalised, stand in two routes. Needs no model."""
    seen: dict[str, str] = {}
    problems = []
    for route in table.semantic_routes:
        for example in route.examples:
            first = seen.setdefault(normalise(example), route.name)
            if first != route.name:
                problems.append(
                    _problem(
                        table,
                        route.name,
                        "contradicting-example",
                        f"“{_short(example)}” is an example of {first} and of {route.name}",
                        "keep it in one of them",
                    )
                )
    return problems


async def misplaced(table: Table, classifier: EmbeddedClassifier) -> list[Problem]:
    """Examples that lie nearer to another route's than to any of their own."""
    import numpy as np

    texts = [(r.name, e) for r in table.semantic_routes for e in dict.fromkeys(r.examples)]
    if not texts:
        return []
    names = np.array([name for name, _ in texts])
    vectors = await classifier.encode([text for _, text in texts])
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -1.0)
    is_own = names[:, None] == names[None, :]
    own = np.where(is_own, cosine, -1.0).max(axis=1)
    other = np.where(is_own, -1.0, cosine)
    problems = []
    for i, (name, text) in enumerate(texts):
        j = int(other[i].argmax())
        likeness = float(other[i, j])
        is_copy = normalise(text) == normalise(texts[j][1])
        if likeness < MIN_LIKENESS or likeness < own[i] + MARGIN or is_copy:
            continue
        problems.append(
            _problem(
                table,
                name,
                "misplaced-example",
                f"“{_short(text)}” ({name}) lies nearer to “{_short(texts[j][1])}” ({names[j]})",
                "move it, or give its own route more examples like it",
            )
        )
    return problems


def _problem(table: Table, name: str, code: str, message: str, remedy: str) -> Problem:
    route = table.route(name)
    assert route is not None
    place = route.place
    return Problem(place.file, place.line, place.column, "warning", code, message, remedy)


def _short(text: str) -> str:
    return text if len(text) <= 50 else text[:49] + "…"
