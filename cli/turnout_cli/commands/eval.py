"""`turnout eval FILE.jsonl`: measure the semantic layer on labelled texts."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnout_rules.loading import Rules
    from turnout_sidecar.evaluation import Figures, Judged, Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE [--rules DIR] [--json] [--html OUT]`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="JSONL: lines of text and route")
    parser.add_argument("--rules", type=Path, metavar="DIR", help="the rules folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", type=Path, metavar="OUT", help="write a report with plots")


def run(args: argparse.Namespace) -> int:
    """Returns 1 when the rows or the classifier cannot be used."""
    from turnout_rules.loading import find_rules_folder, load_rules
    from turnout_sidecar.classifiers import ClassifierError
    from turnout_sidecar.evaluation import RowsError, read_rows

    rules = load_rules(find_rules_folder(args.rules))
    try:
        rows = read_rows(args.file, rules.table)
        found, judged = asyncio.run(evaluate(rules, rows))
    except (RowsError, ClassifierError) as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1
    default = rules.table.default.name if rules.table.default else "(no route)"
    if args.html is not None:
        from turnout_sidecar.evaluation_page import page

        report = page(f"Evaluation of {args.file.name}", found, judged, default)
        try:
            args.html.write_text(report, encoding="utf-8", errors="replace")
        except OSError as error:
            print(f"turnout: {args.html} cannot be written: {error.strerror}", file=sys.stderr)
            return 1
        print(f"report: {args.html}", file=sys.stderr)
    if args.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        _print(found, default)
    return 0


async def evaluate(rules: Rules, rows: list[Row]) -> tuple[Figures, list[Judged]]:
    """Train as the sidecar would, then ask about every row."""
    from turnout_cli.teaching import ready_classifier, working
    from turnout_sidecar.evaluation import figures, judge_rows

    classifier, threshold = await ready_classifier(rules)
    try:
        with working("judging", len(rows)) as advance:
            judged = await judge_rows(rows, classifier, advance)
    finally:
        await classifier.close()
    return figures(judged, threshold), judged


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.1f} %"


def _print(f: Figures, default: str) -> None:
    from turnout_cli.tables import visible

    auroc = "–" if f.oos_auroc is None else f"{f.oos_auroc:.3f}"
    print(f"rows                        {f.rows} ({f.out_of_scope_rows} out of scope)")
    print(f"accuracy                    {_percent(f.accuracy)} (threshold {f.threshold:.3f})")
    print(f"top route right, in scope   {_percent(f.in_scope_accuracy)}")
    print(f"out-of-scope AUROC          {auroc}")
    print(f"coverage at 95 % precision  {_percent(f.coverage_at_95)}")
    print(f"calibration error (ECE)     {f.ece:.3f}")
    print(f"latency                     p50 {f.p50_ms:.1f} ms, p99 {f.p99_ms:.1f} ms")
    width = max([len(name) for name in f.routes] + [5])
    print(f"\n{'route':<{width}}   rows  precision  recall")
    for name, r in f.routes.items():
        print(f"{name:<{width}}  {r.rows:>5}  {_percent(r.precision):>9}  {_percent(r.recall):>6}")
    if f.confusions:
        print("\nmost confused (belongs to → went to)")
    for c in f.confusions[:8]:
        shown = visible(c.example)
        print(f"{c.rows:>5}  {c.route or default} → {c.taken or default}   “{shown}”")
