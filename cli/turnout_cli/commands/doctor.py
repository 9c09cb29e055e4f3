"""`turnout doctor`: is this machine ready, and if not, what to do. Looks only, changes nothing."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnout_rules.folders import runtime_folder

if TYPE_CHECKING:
    from turnout_sidecar.finding import Finding

_CHECK_WIDTH = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which rules, and how to print."""
    parser.add_argument(
        "--rules", type=Path, metavar="DIR", help="rules folder (default: as `turnout up`)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print every finding with its remedy; 1 if one is a failure."""
    import msgspec

    from turnout_cli.environment import TRUST_VARIABLES
    from turnout_rules.loading import find_rules_folder
    from turnout_sidecar.doctor import examine

    findings = examine(
        find_rules_folder(args.rules),
        os.environ,
        own_ports=running_ports(),
        trust_variables=TRUST_VARIABLES,
    )
    is_ready = all(finding.state != "fail" for finding in findings)
    if args.json:
        report = {"ok": is_ready, "checks": findings}
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        print_findings(findings)
    return 0 if is_ready else 1


def print_findings(findings: Sequence[Finding]) -> None:
    """One line a finding, its remedy under it, and the sum."""
    for finding in findings:
        print(f"{finding.state:<5} {finding.check:<{_CHECK_WIDTH}} {finding.message}")
        if finding.remedy and finding.state != "ok":
            print(f"{'':<{_CHECK_WIDTH + 7}}-> {finding.remedy}")
    states = [finding.state for finding in findings]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("ok", "warn", "fail") if s in states)
    print(f"{len(findings)} findings: {counts}")


def running_ports() -> set[int]:
    """The ports of a Turnout of this user that runs now, by its records."""
    ports: set[int] = set()
    for name in ("turnout.json", "sidecar.json"):
        try:
            record = json.loads((runtime_folder() / name).read_bytes())
            os.kill(int(record["pid"]), 0)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        ports |= {value for key, value in record.items() if key.endswith("port") and value}
        if url := record.get("web_url"):
            ports |= {int(url.partition("//")[2].partition("/")[0].rpartition(":")[2])}
    return ports
