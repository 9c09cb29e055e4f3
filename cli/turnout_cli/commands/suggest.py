"""`turnout suggest`: propose examples and keywords from the decision log."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnout_rules.loading import Rules
    from turnout_sidecar.suggestion import Cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`[LOG] [--rules DIR] [--min N] [--most N] [--target T]`."""
    parser.add_argument(
        "log", nargs="?", type=Path, metavar="LOG", help="default: the settings' decision_log"
    )
    parser.add_argument("--rules", type=Path, metavar="DIR", help="the rules folder")
    parser.add_argument(
        "--min", type=int, default=3, help="different texts a group needs (default: %(default)s)"
    )
    parser.add_argument("--most", type=int, default=8, help="most groups (default: %(default)s)")
    parser.add_argument("--target", default="", help="target of the proposed routes")


def run(args: argparse.Namespace) -> int:
    """Prints a YAML patch; 1 when there is no log or no encoder."""
    from turnout_rules.loading import find_rules_folder, load_rules
    from turnout_sidecar.classifiers import ClassifierError
    from turnout_sidecar.suggestion import patch

    rules = load_rules(find_rules_folder(args.rules))
    try:
        texts = _texts(rules, args.log)
        found = asyncio.run(_found(rules, texts, args.min, args.most))
    except (_NothingToRead, ClassifierError) as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1
    if not found:
        print(
            f"turnout: nothing to propose: of {len(texts)} different texts at the default route, "
            f"no {args.min} are alike",
            file=sys.stderr,
        )
        return 0
    default = rules.table.default
    target = args.target or (default.targets[0][0] if default and default.targets else "pass")
    print(patch(found, target), end="")
    return 0


class _NothingToRead(Exception):
    """There is no log, or nothing in it; the message says what to do."""


def _texts(rules: Rules, chosen: Path | None) -> list[tuple[str, int]]:
    from turnout_rules.decision_log import decision_log_path
    from turnout_sidecar.suggestion import log_files, read_log, undecided

    log = chosen or decision_log_path(rules.settings.sidecar)
    if log is None:
        raise _NothingToRead(
            "no decision log is kept: set sidecar.decision_log in turnout.yaml (it takes effect at "
            "once) and let traffic pass. The file keeps what people write"
        )
    files = log_files(log)
    if not files:
        raise _NothingToRead(
            f"no decision log at {log}"
            + ("" if chosen else ": no request was decided since sidecar.decision_log was set")
        )
    try:
        entries = [entry for file in files for entry in read_log(file)]
    except OSError as error:
        raise _NothingToRead(f"{error.filename}: {error.strerror}") from None
    if not entries:
        raise _NothingToRead(
            f"{log} has no line of a decision log: each is a JSON object with `text` and `layer`"
        )
    return undecided(entries)


async def _found(
    rules: Rules, texts: list[tuple[str, int]], smallest: int, most: int
) -> list[Cluster]:
    import msgspec

    from turnout_sidecar.classifiers.embedded import build_embedded
    from turnout_sidecar.suggestion import clusters

    if not texts:
        return []
    classifier = build_embedded(rules.settings.classifier)
    try:
        vectors = await classifier.encode([text for text, _ in texts])
        found = clusters(texts, vectors, min_size=smallest, most=most)
        if not rules.table.semantic_routes:
            return found
        await classifier.prepare(rules.table)
        named = []
        for cluster in found:
            near = await classifier.nearest(cluster.texts[0], 1)
            is_near = bool(near) and near[0].similarity >= 0.35
            named.append(
                msgspec.structs.replace(cluster, nearest_route=near[0].route if is_near else None)
            )
        return named
    finally:
        await classifier.close()
