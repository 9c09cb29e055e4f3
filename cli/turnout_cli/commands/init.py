"""`turnout init DIR`: starter rules, commented, that work as they are; overwrites nothing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

PROFILES = ("routing", "7b", "27b", "full")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to, and for which machine."""
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR", help="folder to write (default: ./rules)"
    )
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        help="upstreams for a kind of machine, instead of the starter's",
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that are there")


def run(args: argparse.Namespace) -> int:
    """Write the files, all or none."""
    from turnout_rules.starter import starter_files, write_files

    folder: Path = args.folder or Path("rules")
    files = starter_files()
    if args.profile:
        from turnout_sidecar.profiles import profile_upstreams

        files = fitted(files, profile_upstreams(args.profile))
    there = [name for name in files if (folder / name).exists()]
    if there and not args.force:
        names = ", ".join(there)
        print(f"turnout: {folder} holds {names} already; --force overwrites", file=sys.stderr)
        return 1
    try:
        write_files(folder, files)
    except OSError as error:
        print(f"turnout: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"wrote {', '.join(files)} to {folder}")
    print(f"next: turnout check {folder}; turnout up --rules {folder}")
    return 0


def fitted(files: dict[str, str], upstreams: str) -> dict[str, str]:
    """The starter files with these upstreams instead: routes go to a target that they have."""
    from turnout_rules.starter import STARTER_TARGET, targets_in

    targets = targets_in(upstreams)
    changed = files | {"upstreams.yaml": upstreams}
    if STARTER_TARGET in targets or not targets:
        return changed
    for name in ("routes.yaml", "scripts/pick.py"):
        changed[name] = changed[name].replace(STARTER_TARGET, targets[0])
    if "engine:" not in upstreams:
        head, found, tail = changed["probes.yaml"].rpartition("route: code\n")
        note = "route: default    # no target here speaks Anthropic's API\n"
        changed["probes.yaml"] = head + (note if found else "") + tail
    return changed
