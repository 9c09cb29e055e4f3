"""`turnout calibrate FILE.jsonl`: fit thresholds and write them into the rules."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnout_rules.loading import Rules
    from turnout_rules.table import Table
    from turnout_sidecar.calibration import Fit
    from turnout_sidecar.evaluation import Judged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE [--rules DIR] [--share TARGET=PERCENT …] [--dry-run]`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="JSONL: lines of text and route")
    parser.add_argument("--rules", type=Path, metavar="DIR", help="the rules folder")
    parser.add_argument(
        "--share",
        action="append",
        default=[],
        metavar="TARGET=PERCENT",
        help="instead of fitting to labels: let TARGET take that share of the texts",
    )
    parser.add_argument("--dry-run", action="store_true", help="show, write nothing")


def run(args: argparse.Namespace) -> int:
    """Returns 1 when something cannot be used or written, 2 for a wrong share."""
    from turnout_rules.loading import find_rules_folder, load_rules
    from turnout_sidecar.calibration import fit_shares, fit_thresholds, write_thresholds
    from turnout_sidecar.classifiers import ClassifierError
    from turnout_sidecar.evaluation import RowsError

    rules = load_rules(find_rules_folder(args.rules))
    targets = _targets(rules.table)
    try:
        wanted = dict(_share(said, targets) for said in args.share)
    except ValueError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 2
    try:
        judged, before = asyncio.run(_judged(rules, args.file, needs_route=not wanted))
        fits = fit_shares(judged, wanted, targets, before) if wanted else fit_thresholds(judged)
    except (RowsError, ClassifierError) as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1
    _print(fits)
    if args.dry_run or not fits:
        return 0
    folder = find_rules_folder(args.rules)
    try:
        refused = write_thresholds(rules.table.routes, fits, lambda: load_rules(folder))
    except OSError as error:
        print(f"turnout: nothing written: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    for line in refused:
        print(f"turnout: {line}", file=sys.stderr)
    return int(bool(refused))


def _targets(table: Table) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for route in table.semantic_routes:
        for target, _weight in route.targets:
            out.setdefault(target, []).append(route.name)
    return out


def _share(said: str, targets: dict[str, list[str]]) -> tuple[str, float]:
    target, _, percent = said.rpartition("=")
    if target not in targets:
        there = ", ".join(targets) or "none"
        raise ValueError(f"no semantic route goes to {target!r} (there are: {there})")
    try:
        share = float(percent.removesuffix("%")) / 100
    except ValueError as error:
        raise ValueError(f"{said!r} is not TARGET=PERCENT") from error
    if not 0 <= share <= 1:
        raise ValueError(f"{percent} is not between 0 and 100 percent")
    return target, share


async def _judged(
    rules: Rules, path: Path, *, needs_route: bool
) -> tuple[list[Judged], dict[str, float]]:
    """The judged rows, and each route's threshold in force."""
    from turnout_cli.teaching import ready_classifier, working
    from turnout_sidecar.evaluation import judge_rows, read_rows

    rows = read_rows(path, rules.table, needs_route=needs_route)
    classifier, general = await ready_classifier(rules)
    before = {
        route.name: general if route.threshold is None else route.threshold
        for route in rules.table.semantic_routes
    }
    try:
        with working("judging", len(rows)) as advance:
            return await judge_rows(rows, classifier, advance), before
    finally:
        await classifier.close()


def _print(fits: list[Fit]) -> None:
    if not fits:
        print("nothing to fit: every route was named for fewer than eight rows")
        return
    width = max(len(f.route) for f in fits)
    print(f"{'route':<{width}}  threshold  before  named  taken  right")
    for f in fits:
        print(
            f"{f.route:<{width}}  {f.threshold:>9.3f}  {f.before:>6.3f}  {f.rows:>5}  "
            f"{f.taken:>5}  {f.right:>5}"
        )
