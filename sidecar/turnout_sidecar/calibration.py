"""Thresholds fitted to labelled rows, or to a wanted share of traffic, and written into the rules.

The fit is pure. Writing changes one line a route and keeps every comment; a route whose YAML cannot
be edited line by line is reported, never rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from turnout_rules.contents import written_aside
from turnout_rules.model import Route
from turnout_sidecar.evaluation import Judged, RowsError

MIN_ROWS = 8
_THRESHOLD = re.compile(r"^(\s*(?:-\s+)?threshold:\s*)([^\s#]+)(.*)$")


class Fit(msgspec.Struct, frozen=True):
    """A route's fitted threshold and what it does on the rows."""

    route: str
    threshold: float
    before: float
    rows: int
    """Rows that the classifier thinks belong to the route."""
    taken: int
    right: int


def fit_thresholds(judged: Sequence[Judged]) -> list[Fit]:
    """For each route the threshold where right answers minus wrong ones peak.

    Routes named for fewer than `MIN_ROWS` rows are left alone: a handful says nothing.
    """
    fits = []
    for name in sorted({j.verdict.route for j in judged if j.verdict.route is not None}):
        mine = [j for j in judged if j.verdict.route == name]
        if len(mine) < MIN_ROWS:
            continue
        probability = np.array([j.verdict.probability for j in mine])
        right = np.array([j.row.route == name for j in mine])
        order = np.argsort(-probability, kind="stable")
        gain = np.concatenate([[0], np.cumsum(np.where(right[order], 1, -1))])
        # One row more or less is chance: of the near-best counts the least change is taken.
        now = int((probability >= mine[0].verdict.threshold).sum())
        good = np.flatnonzero(gain >= gain.max() - 1)
        count = int(good[np.argmin(np.abs(good - now))])
        fits.append(_fit(name, mine, probability[order], count))
    return fits


def fit_shares(
    judged: Sequence[Judged],
    wanted: Mapping[str, float],
    targets: Mapping[str, Sequence[str]],
    before: Mapping[str, float],
) -> list[Fit]:
    """Thresholds by which each target of `wanted` takes its share of all rows.

    `targets` names each target's routes; all routes of a target get the same threshold. `before`
    has each route's threshold in force. A share above what the classifier would ever give a target
    lowers its thresholds to take all of that. Raises `RowsError` for fewer than `MIN_ROWS` rows.
    """
    if len(judged) < MIN_ROWS:
        raise RowsError(f"{len(judged)} texts say nothing about shares: give {MIN_ROWS} or more")
    fits = []
    for target, share in wanted.items():
        routes = set(targets[target])
        mine = [j for j in judged if j.verdict.route in routes]
        probability = np.array([j.verdict.probability for j in mine])
        order = np.argsort(-probability, kind="stable")
        count = min(len(mine), round(share * len(judged)))
        whole = _fit(target, mine, probability[order], count)
        for name in sorted(routes):
            own = [j for j in mine if j.verdict.route == name]
            kept = [j for j in own if j.verdict.probability >= whole.threshold]
            fits.append(
                Fit(
                    route=name,
                    threshold=whole.threshold,
                    before=before[name],
                    rows=len(own),
                    taken=len(kept),
                    right=sum(j.row.route == name for j in kept),
                )
            )
    return fits


def _fit(name: str, mine: Sequence[Judged], falling: npt.NDArray[np.float64], count: int) -> Fit:
    """The threshold between the `count` most probable rows and the rest."""
    if not len(falling):
        threshold = 1.0
    elif count == 0:
        threshold = min(1.0, float(falling[0]) + 0.0001)
    elif count == len(falling):
        threshold = max(0.0, float(falling[-1]) - 0.0001)
    else:
        threshold = float(falling[count - 1] + falling[count]) / 2
    threshold = round(min(0.9999, max(0.01, threshold)), 4)
    taken = [j for j in mine if j.verdict.probability >= threshold]
    return Fit(
        route=name,
        threshold=threshold,
        before=mine[0].verdict.threshold if mine else 0.0,
        rows=len(mine),
        taken=len(taken),
        right=sum(j.row.route == name for j in taken),
    )


def with_threshold(text: str, line: int, threshold: float) -> str | None:
    """`text` with the threshold of the route whose first key stands on `line`; None: cannot.

    A `threshold:` line keeps its comment; otherwise one is put below the route's first line.
    """
    lines = text.splitlines(keepends=True)
    first = lines[line - 1] if 0 < line <= len(lines) else ""
    start = re.match(r"^(\s*-\s+)[\w-]+\s*:", first)
    if start is None:
        return None
    indent = len(start.group(1))
    ending = "\r\n" if first.endswith("\r\n") else "\n"
    for i in range(line - 1, len(lines)):
        plain = lines[i].rstrip("\r\n")
        depth = len(plain) - len(plain.lstrip())
        if i >= line and plain.strip() and not plain.lstrip().startswith("#") and depth < indent:
            break
        if i >= line and depth != indent:
            continue
        if (found := _THRESHOLD.match(plain)) is not None:
            lines[i] = f"{found.group(1)}{threshold:g}{found.group(3)}{ending}"
            return "".join(lines)
    own = f"threshold: {threshold:g}{ending}"
    if re.match(r"^\s*-\s+[\w-]+\s*:\s+[^\s|>#&]", first):
        lines[line - 1] = first if first.endswith("\n") else first + ending
        lines.insert(line, " " * indent + own)
    else:
        # The first key's value stands on the lines below it: go before the key.
        lines[line - 1] = f"{start.group(1)}{own}{' ' * indent}{first[indent:]}"
    return "".join(lines)


def write_thresholds(
    routes: Sequence[Route], fits: Sequence[Fit], check: Callable[[], object]
) -> list[str]:
    """Write `fits` into the routes' files; gives what could not be edited, with file and line.

    When `check` raises afterwards, the files are as they were.
    """
    by_name = {route.name: route for route in routes}
    refused = []
    # Bottom up, so that a line put in does not move the places still to come.
    ordered = sorted(fits, key=lambda f: -by_name[f.route].place.line)
    texts: dict[Path, str] = {}
    before: dict[Path, str] = {}
    for fit in ordered:
        place = by_name[fit.route].place
        path = Path(place.file)
        if path not in texts:
            with path.open(encoding="utf-8", newline="") as file:
                texts[path] = before[path] = file.read()
        changed = with_threshold(texts[path], place.line, fit.threshold)
        if changed is None:
            refused.append(
                f"{place.file}:{place.line}: {fit.route} is not written as a block; "
                f"put `threshold: {fit.threshold:g}` there by hand"
            )
        else:
            texts[path] = changed
    try:
        _write(texts)
        check()
    except Exception:
        _write(before)
        raise
    return refused


def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        with written_aside(path.resolve()) as file:
            file.write(text.encode())
