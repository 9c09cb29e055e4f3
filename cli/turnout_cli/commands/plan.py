"""`turnout plan`: what each local engine will hold, whether it fits, and what would make it fit."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from turnout_rules.folders import data_folder
from turnout_rules.loading import find_rules_folder, load_rules

TABLE_WIDTH = 150


if TYPE_CHECKING:
    from turnout_rules.model import Target
    from turnout_rules.settings import Engines
    from turnout_sidecar.machine import Machine
    from turnout_sidecar.planner import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which rules, and how to print."""
    parser.add_argument("--rules", type=Path, metavar="DIR", help="rules folder")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """One row a backend; 1 if one cannot be planned or does not fit."""
    import msgspec

    from turnout_sidecar.machine import MachineProbe
    from turnout_sidecar.startable import remarks

    rules = load_rules(find_rules_folder(args.rules))
    targets = [
        rules.table.resolve(f"{upstream.name}/{name}")
        for upstream in rules.table.upstreams.values()
        if upstream.is_managed
        for name in upstream.models
    ]
    seen = MachineProbe().look()
    errors = _broken(targets)
    whole = [target for target in targets if target.name not in errors]
    own = rules.settings.sidecar.data_dir
    data = Path(own).expanduser() if own else data_folder()
    plans, unplanned = _plans(whole, seen, rules.settings.engines, data)
    errors |= unplanned
    if args.json:
        rows = [msgspec.to_builtins(plan) for plan in plans]
        rows += [{"name": name, "error": error} for name, error in errors.items()]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    elif not targets:
        print("no local engines in the rules: nothing to plan")
    else:
        _print(plans, errors, seen)
        for remark, remedy in (pair for target in whole for pair in remarks(target)):
            print(f"{remark}; {remedy}")
    return 1 if errors or not all(plan.fits for plan in plans) else 0


def _plans(
    targets: list[Target], seen: Machine, limits: Engines, data: Path
) -> tuple[list[Plan], dict[str, str]]:
    """Each backend with the machine to itself: what is free now, within the budget."""
    import msgspec

    from turnout_sidecar.assessment import MEASUREMENTS_FILE, plan_of
    from turnout_sidecar.placement import room_for
    from turnout_sidecar.planner import Measurements, UnreadableModelError

    known = Measurements(data / MEASUREMENTS_FILE)
    plans: list[Plan] = []
    errors: dict[str, str] = {}
    for target in targets:
        room = room_for(target, seen, os.environ)
        budget = limits.vram_budget_bytes
        free = room.free_bytes
        if room.device == "cpu":
            budget = limits.ram_budget_bytes
            free -= int(seen.ram_total_bytes * (1 - limits.max_ram_percent / 100))
        free = max(0, free if budget is None else min(free, budget))
        try:
            here = msgspec.structs.replace(room, free_bytes=free)
            plans.append(plan_of(target, here, known))
        except UnreadableModelError as error:
            errors[target.name] = str(error)
    return plans, errors


def _broken(targets: list[Target]) -> dict[str, str]:
    """What is wrong with a model's files."""
    from turnout_sidecar.model_faults import faults_of

    found = {}
    for target in targets:
        for fault in reversed([fault for fault in faults_of(target) if fault.is_fatal]):
            found[target.name] = f"{fault.message}; {fault.remedy}".removesuffix("; ")
    return found


def _print(plans: list[Plan], errors: dict[str, str], seen: Machine) -> None:
    from rich.table import Table

    from turnout_cli.tables import print_table

    table = Table(box=None, pad_edge=False)
    table.add_column("backend")
    table.add_column("on")
    for title in ("weights", "KV a request", "KV total", "overhead", "total", "free"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("fits")
    for title in ("most requests", "longest context"):
        table.add_column(title, justify="right")
    for plan in plans:
        table.add_row(
            plan.name,
            plan.device if plan.cards == 1 else f"{plan.cards} cards, each",
            *map(
                _gib,
                (
                    plan.weight_bytes,
                    plan.kv_request_bytes,
                    plan.kv_total_bytes,
                    plan.overhead_bytes,
                    plan.total_bytes,
                    plan.free_bytes,
                ),
            ),
            "yes" if plan.fits else "NO",
            str(plan.max_num_seqs),
            f"{plan.context:,}",
        )
    print_table(table, width=TABLE_WIDTH)
    for plan in plans:
        if plan.problem:
            print(f"{plan.name}: {plan.problem}" + (f"; {plan.advice}" if plan.advice else ""))
        if plan.warning:
            print(f"{plan.name}: {plan.warning}")
    for name, error in errors.items():
        print(f"{name}: cannot be planned: {error}")
    if not seen.gpus:
        print(f"no graphics card was seen ({seen.gpu_error})")


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
