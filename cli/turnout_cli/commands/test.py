"""`turnout test [DIR]`: run the probes of a rules folder, with a difference for each that fails."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from turnout_rules.decision import Verdict
    from turnout_rules.loading import Rules
    from turnout_rules.probes import Outcome
    from turnout_rules.request import Request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which probes, and how to answer."""
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="rules folder")
    parser.add_argument(
        "--rules", type=Path, metavar="DIR", help="the same, as other commands name it"
    )
    parser.add_argument(
        "--tag", action="append", default=[], metavar="T", help="only probes with this tag"
    )
    parser.add_argument("--json", action="store_true", help="print outcomes as JSON")
    parser.add_argument(
        "--semantic", action="store_true", help="ask the classifier too (loads it first)"
    )


def run(args: argparse.Namespace) -> int:
    """0 if all chosen probes are met, 1 if not, 2 if a tag chooses none."""
    from turnout_rules.loading import find_rules_folder, load_rules
    from turnout_rules.probes import run_probes

    folder = find_rules_folder(args.folder or args.rules)
    rules = load_rules(folder)
    chosen = tuple(p for p in rules.probes if not args.tag or set(args.tag) & set(p.tags))
    if not chosen:
        tags = sorted({tag for p in rules.probes for tag in p.tags})
        which = f"with tag {', '.join(args.tag)} (there is: {', '.join(tags)})" if args.tag else ""
        print(f"turnout: {folder} has no probes {which}".rstrip(), file=sys.stderr)
        return 2 if args.tag else 0
    started = perf_counter()
    outcomes = run_probes(rules.table, rules.settings.reading, chosen)
    elapsed_ms = (perf_counter() - started) * 1_000
    if args.semantic:
        outcomes = asyncio.run(_ask_classifier(rules, outcomes))
    if args.json:
        _print_json(outcomes, elapsed_ms)
    else:
        _print_text(outcomes, elapsed_ms)
    return int(not all(o.is_met for o in outcomes))


async def _ask_classifier(rules: Rules, outcomes: list[Outcome]) -> list[Outcome]:
    """Settle what no rule took, and judge it again by what the classifier says."""
    from turnout_cli.teaching import build
    from turnout_rules.probes import differences

    classifier = build(rules)
    await classifier.prepare(rules.table)
    settled = []
    try:
        for outcome in outcomes:
            decision, probe = outcome.decision, outcome.probe
            if decision is None or not decision.wants_classifier or not probe.text:
                settled.append(outcome)
                continue
            verdict: Verdict = await classifier.classify(probe.text)
            decision = rules.table.settle(_request(outcome), decision, verdict)
            decision = msgspec.structs.replace(decision, wants_classifier=False)
            wrong = tuple(differences(probe, decision))
            settled.append(msgspec.structs.replace(outcome, decision=decision, wrong=wrong))
    finally:
        await classifier.close()
    return settled


def _request(outcome: Outcome) -> Request:
    from turnout_rules.request import Request

    return Request.from_text(outcome.probe.text, model=outcome.probe.model)


def _print_json(outcomes: list[Outcome], elapsed_ms: float) -> None:
    rows = [
        {
            "probe": o.probe.label,
            "place": f"{o.probe.place.file}:{o.probe.place.line}",
            "tags": o.probe.tags,
            "ok": o.is_met,
            "route": o.decision.route if o.decision else None,
            "target": o.decision.target if o.decision else None,
            "layer": o.decision.layer if o.decision else None,
            "reason": o.decision.reason if o.decision else "",
            "wrong": [{"what": w, "expected": e, "found": f} for w, e, f in o.wrong],
        }
        for o in outcomes
    ]
    ok = all(o.is_met for o in outcomes)
    print(msgspec.json.encode({"ok": ok, "elapsed_ms": elapsed_ms, "probes": rows}).decode())


def _print_text(outcomes: list[Outcome], elapsed_ms: float) -> None:
    failed = [o for o in outcomes if not o.is_met]
    for outcome in failed:
        place = outcome.probe.place
        print(f"{place.file}:{place.line}:{place.column}: “{outcome.probe.label}”")
        for what, expected, found in outcome.wrong:
            print(f"  - {what}: {expected}")
            print(f"  + {what}: {found}")
        if outcome.decision and outcome.decision.reason:
            print(f"  because {outcome.decision.reason}")
    met = len(outcomes) - len(failed)
    print(f"{met} of {len(outcomes)} probes met in {elapsed_ms:.1f} ms")
