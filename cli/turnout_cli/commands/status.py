"""`turnout status`: the local engines, what they hold, who waits for them."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from turnout_cli.sidecar_access import SidecarError, ask, running_url


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where, and how to print."""
    parser.add_argument("--url", help="sidecar, e.g. http://127.0.0.1:8083 (found by itself)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print one row a backend; 1 if no sidecar answers."""
    try:
        rows: list[dict[str, Any]] = ask(args.url or running_url(), "GET", "/backends")["backends"]
    except (SidecarError, KeyError) as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        print_rows(rows)
    return 0


def print_rows(rows: list[dict[str, Any]]) -> None:
    """A table, and under it what failed and what to do."""
    from rich.console import Console
    from rich.table import Table

    if not rows:
        print("no local engines in the rules")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("backend", "engine", "state", "running", "waiting", "memory", "on", "starts"):
        is_number = title in ("running", "waiting", "memory", "starts")
        table.add_column(title, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(
            row["name"],
            row["engine"],
            row["state"],
            f"{row['running']}/{row['seats']}" if row["seats"] < 10_000 else str(row["running"]),
            f"{row['waiting']}/{row['queue_length']}",
            _gib(row["rss_bytes"] or row["need_bytes"]),
            row["device"],
            str(row["starts"]),
        )
    Console(soft_wrap=True, highlight=False).print(table)
    for row in rows:
        if row["message"]:
            remedy = f"; {row['remedy']}" if row["remedy"] else ""
            print(f"{row['name']}: {row['message']}{remedy}")


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count else "-"
