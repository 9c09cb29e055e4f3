"""`turnout replay`: what the rules would do with recorded requests. Sends nothing anywhere."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnout_rules.replay import Replayed, Totals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE [--rules DIR] [--json] [--quiet]`."""
    parser.add_argument(
        "file", type=Path, help="JSON lines with method, uri, headers and body; - reads stdin"
    )
    parser.add_argument("--rules", type=Path, metavar="DIR", help="the rules folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="print the totals only")


def run(args: argparse.Namespace) -> int:
    """Exit 1 if the file cannot be read or a line is not a recorded request."""
    import msgspec

    from turnout_rules.loading import find_rules_folder, load_rules
    from turnout_rules.reading import Reader
    from turnout_rules.replay import replay, total

    rules = load_rules(find_rules_folder(args.rules))
    try:
        lines = _lines(args.file)
    except OSError as error:
        print(f"turnout replay: cannot read {args.file}: {error.strerror}", file=sys.stderr)
        return 1
    replayed = list(replay(lines, rules.table, Reader(rules.settings.reading)))
    totals = total(replayed)
    if args.json:
        output = msgspec.json.encode({"requests": replayed, "totals": totals})
        print(msgspec.json.format(output).decode())
    else:
        if not args.quiet:
            _print_requests(replayed)
        _print_totals(totals)
    return 1 if any(one.outcome == "failed" for one in replayed) else 0


def _lines(file: Path) -> list[bytes]:
    if str(file) == "-":
        return sys.stdin.buffer.read().splitlines()
    return file.read_bytes().splitlines()


def _print_requests(replayed: Iterable[Replayed]) -> None:
    for one in replayed:
        uri = one.uri.removeprefix("https://")[:60]
        target = one.decision.target if one.decision is not None else ""
        if one.outcome == "moved":
            notes = [f"{one.model} -> {target}", f"changed: {', '.join(one.changed) or 'nothing'}"]
            notes += [f"({', '.join(one.adjustments)})"] if one.adjustments else []
        else:
            notes = [one.why]
        print(f"{one.line:>5}  {one.outcome:<8}  {uri:<60}  {'  '.join(notes)}")


def _print_totals(totals: dict[str, Totals]) -> None:
    from turnout_rules.replay import OUTCOMES

    shown = [o for o in OUTCOMES if any(entry.outcomes.get(o) for entry in totals.values())]
    print(f"\n{'endpoint':<12}{'requests':>9}" + "".join(f"{name:>10}" for name in shown))
    for endpoint, entry in totals.items():
        counts = "".join(f"{entry.outcomes.get(name, 0):>10}" for name in shown)
        print(f"{endpoint:<12}{entry.requests:>9}{counts}")
    for endpoint, entry in totals.items():
        for outcome, reasons in entry.reasons.items():
            for why, count in sorted(reasons.items(), key=lambda pair: -pair[1]):
                print(f"{count:>5}  {endpoint} {outcome}: {why}")
