"""How good the semantic layer is on labelled texts: the rows, the figures, the pairs it confuses.

Asks the classifier that the sidecar would use, one text at a time; changes nothing.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from turnout_rules.decision import Verdict
from turnout_rules.table import Table
from turnout_sidecar.classifiers.base import Classifier
from turnout_sidecar.classifiers.confidence import expected_calibration_error

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
OUTSIDE_NAMES = frozenset({"oos", "none", "out_of_scope", ""})
"""Names that mean out of scope besides the default route's, unless a route bears one."""


class RowsError(Exception):
    """The labelled file cannot be used; the message names file, line and remedy."""


class Row(msgspec.Struct, frozen=True):
    """A labelled text; `route` None: it fits no route."""

    text: str
    route: str | None


class Judged(msgspec.Struct, frozen=True):
    """A row with what the classifier said and how long that took."""

    row: Row
    verdict: Verdict
    elapsed_ms: float

    @property
    def taken(self) -> str | None:
        """The route that would have been taken; None: the default decides."""
        return self.verdict.route if self.verdict.is_accepted else None


class RouteFigures(msgspec.Struct, frozen=True):
    """One route, threshold applied."""

    rows: int
    precision: float | None
    recall: float | None


class Confusion(msgspec.Struct, frozen=True):
    """Rows of `route` that went to `taken` instead; None: the default route."""

    route: str | None
    taken: str | None
    rows: int
    example: str


class Figures(msgspec.Struct, frozen=True):
    """What `turnout eval` reports. Shares are 0 to 1; None: the rows cannot tell."""

    accuracy: float
    """Rows that ended where they belong, threshold applied (out of scope: at the default)."""
    in_scope_accuracy: float | None
    """Rows of a route whose most probable route is right, threshold aside."""
    oos_auroc: float | None
    coverage_at_95: float
    """The largest share of rows that can be taken with 95 % of them right."""
    ece: float
    p50_ms: float
    p99_ms: float
    threshold: float
    rows: int
    out_of_scope_rows: int
    routes: dict[str, RouteFigures]
    confusions: tuple[Confusion, ...]


def read_rows(path: Path, table: Table, *, needs_route: bool = True) -> list[Row]:
    """The labelled texts of a JSONL file. Raises `RowsError` for what cannot be used.

    Without `needs_route` a line may hold a text alone.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RowsError(f"{path}: {error}") from error
    default = table.default.name if table.default is not None else None
    known = {route.name for route in table.semantic_routes}
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        text, name = _fields(path, number, line, needs_route)
        if name in known and name != default:
            rows.append(Row(text, name))
        elif name == default or name in OUTSIDE_NAMES:
            rows.append(Row(text, None))
        else:
            there = ", ".join(sorted(known)) or "none"
            raise RowsError(
                f"{path}:{number}: no semantic route is called {name!r} (there are: {there}; "
                f"out of scope is {default or 'oos'!r})"
            )
    if not rows:
        raise RowsError(f'{path} has no rows: write lines such as {{"text": "…", "route": "…"}}')
    return rows


def _fields(path: Path, number: int, line: str, needs_route: bool) -> tuple[str, str]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RowsError(f"{path}:{number}: not JSON ({error})") from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise RowsError(f"{path}:{number}: a line must be an object with `text` and `route`")
    if needs_route and "route" not in row:
        raise RowsError(f"{path}:{number}: `route` is missing (null: the text fits no route)")
    name = row.get("route")
    if name is not None and not isinstance(name, str):
        raise RowsError(f"{path}:{number}: `route` must be a name")
    # Half a surrogate pair can be neither encoded nor printed.
    return row["text"].encode("utf-8", "replace").decode(), name or ""


async def judge_rows(
    rows: Sequence[Row], classifier: Classifier, progress: Callable[[int], None] | None = None
) -> list[Judged]:
    """Ask `classifier` about each row in turn."""
    judged = []
    for row in rows:
        started = time.perf_counter()
        verdict = await classifier.classify(row.text)
        judged.append(Judged(row, verdict, (time.perf_counter() - started) * 1_000))
        if progress is not None:
            progress(1)
    return judged


def figures(judged: Sequence[Judged], threshold: float) -> Figures:
    """The figures of judged rows; `threshold` is only reported."""
    inside = np.array([j.row.route is not None for j in judged])
    right = np.array([j.row.route is not None and j.verdict.route == j.row.route for j in judged])
    ended = np.array([j.taken == j.row.route for j in judged])
    probability = np.array([j.verdict.probability for j in judged])
    fits = np.array([1.0 - j.verdict.out_of_scope for j in judged])
    elapsed = np.array([j.elapsed_ms for j in judged])
    return Figures(
        accuracy=_share(ended),
        in_scope_accuracy=_share(right[inside]) if inside.any() else None,
        oos_auroc=auroc(fits[inside], fits[~inside]),
        coverage_at_95=coverage(probability, right, 0.95),
        ece=round(expected_calibration_error(probability.tolist(), right.tolist()), 4),
        p50_ms=round(float(np.percentile(elapsed, 50)), 3),
        p99_ms=round(float(np.percentile(elapsed, 99)), 3),
        threshold=threshold,
        rows=len(judged),
        out_of_scope_rows=int((~inside).sum()),
        routes=_per_route(judged),
        confusions=_confusions(judged),
    )


def auroc(inside: Numbers, outside: Numbers) -> float | None:
    """How often a row that fits scores above one that does not; ties count half."""
    if not len(inside) or not len(outside):
        return None
    ordered = np.sort(outside)
    below = np.searchsorted(ordered, inside, side="left")
    up_to = np.searchsorted(ordered, inside, side="right")
    return round(float((below + up_to).sum() / (2 * len(inside) * len(outside))), 4)


def curve(probability: Numbers, right: Flags) -> tuple[Numbers, Numbers]:
    """(coverage, precision) as the threshold falls, at the ends of runs of equal probability."""
    order = np.argsort(-probability, kind="stable")
    ranked = probability[order]
    ends = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
    precision = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    return (ends + 1) / len(order), precision[ends]


def coverage(probability: Numbers, right: Flags, precision: float) -> float:
    """The largest share of rows whose best part reaches `precision`."""
    covered, reached = curve(probability, right)
    good = np.flatnonzero(reached >= precision)
    return round(float(covered[good[-1]]), 4) if len(good) else 0.0


def _share(flags: Flags) -> float:
    return round(float(flags.mean()), 4) if len(flags) else 0.0


def _per_route(judged: Sequence[Judged]) -> dict[str, RouteFigures]:
    rows = Counter(j.row.route for j in judged)
    taken = Counter(j.taken for j in judged)
    right = Counter(j.taken for j in judged if j.taken == j.row.route)
    names = sorted({name for name in (*rows, *taken) if name is not None})
    return {
        name: RouteFigures(
            rows=rows[name],
            precision=round(right[name] / taken[name], 4) if taken[name] else None,
            recall=round(right[name] / rows[name], 4) if rows[name] else None,
        )
        for name in names
    }


def _confusions(judged: Sequence[Judged], most: int = 20) -> tuple[Confusion, ...]:
    pairs: Counter[tuple[str | None, str | None]] = Counter()
    examples: dict[tuple[str | None, str | None], str] = {}
    for j in judged:
        if j.taken != j.row.route:
            pairs[j.row.route, j.taken] += 1
            examples.setdefault((j.row.route, j.taken), j.row.text)
    return tuple(
        Confusion(route=pair[0], taken=pair[1], rows=count, example=examples[pair])
        for pair, count in pairs.most_common(most)
    )
