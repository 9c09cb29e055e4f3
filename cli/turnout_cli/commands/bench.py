"""`turnout bench`: the decision path measured in this process, as a table or as JSON rows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout_rules.benchmark import Row

_HEAD = f"{'routes':>8} {'body':>16} {'p50 µs':>10} {'p99 µs':>10}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which tables and bodies, and for how long."""
    parser.add_argument(
        "--routes", type=_numbers, metavar="N,N", help="table sizes (default: 10,1000,10000)"
    )
    parser.add_argument(
        "--body-kb", type=_numbers, metavar="N,N", help="body sizes in KB (default: 1,15,250)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="how long to measure each row (default: 1)"
    )
    parser.add_argument(
        "--agents", action="store_true", help="bodies shaped like coding agents' instead"
    )
    parser.add_argument(
        "--turns", action="store_true", help="deciding alone, with the memory of turns, instead"
    )
    parser.add_argument("--json", action="store_true", help="print a list of rows")


def run(args: argparse.Namespace) -> int:
    """Print each row as it is done."""
    rows = []
    if not args.json:
        print(_HEAD, flush=True)
    for row in _measure(args):
        rows.append(row)
        if not args.json:
            print(_line(row), flush=True)
    if args.json:
        json.dump([_json_row(row) for row in rows], sys.stdout, indent=2)
        print()
    return 0


def _measure(args: argparse.Namespace) -> Iterator[Row]:
    from time import perf_counter_ns

    from turnout_rules.benchmark import BODIES_KB, ROUTES, measure, measure_turns

    if args.agents:
        from turnout_rules.agent_bodies import measure_agents

        routes = args.routes or [1_000]
        return measure_agents(perf_counter_ns, routes=routes, seconds=args.seconds)
    if args.turns:
        routes = args.routes or [1_000]
        return measure_turns(perf_counter_ns, routes=routes, seconds=args.seconds)
    return measure(
        perf_counter_ns,
        routes=args.routes or ROUTES,
        bodies_kb=args.body_kb or BODIES_KB,
        seconds=args.seconds,
    )


def _line(row: Row) -> str:
    body = row.name or f"{row.body_kb} KB"
    decoding = f"  (decompression {row.decode_p50_us:,.0f} µs apart)" if row.decode_p50_us else ""
    return f"{row.routes:>8,} {body:>16} {row.p50_us:>10,.1f} {row.p99_us:>10,.1f}{decoding}"


def _json_row(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        "routes": row.routes,
        "body_kb": row.body_kb,
        "p50_us": row.p50_us,
        "p99_us": row.p99_us,
    }
    if row.name:
        found |= {"name": row.name, "decode_p50_us": row.decode_p50_us}
    return found


def _numbers(value: str) -> list[int]:
    try:
        found = [int(part) for part in value.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"`{value}` is not a list of numbers such as 10,1000")
    return found
