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
    parser.add_argument("--min", type=int, default=3, help="smallest group (default: %(default)s)")
    parser.add_argument("--most", type=int, default=8, help="most groups (default: %(default)s)")
    parser.add_argument("--target", default="", help="target of the proposed routes")


def run(args: argparse.Namespace) -> int:
    """Prints a YAML patch; 1 when there is no log or no encoder."""
    from turnout_rules.loading import find_rules_folder, load_rules
    from turnout_sidecar.classifiers import ClassifierError
    from turnout_sidecar.suggestion import patch

    rules = load_rules(find_rules_folder(args.rules))
    log = args.log or (Path(rules.settings.sidecar.decision_log or ""))
    if not log.is_file():
        print(
            f"turnout: no decision log at {str(log)!r}: name a file, or set sidecar.decision_log "
            "in turnout.yaml and let traffic pass (it keeps the texts people write)",
            file=sys.stderr,
        )
        return 1
    try:
        found = asyncio.run(_found(rules, log, args.min, args.most))
    except ClassifierError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1
    if not found:
        print(
            "turnout: nothing to propose: no group of like texts is large enough", file=sys.stderr
        )
        return 0
    default = rules.table.default
    target = args.target or (default.targets[0][0] if default and default.targets else "pass")
    print(patch(found, target), end="")
    return 0


async def _found(rules: Rules, log: Path, smallest: int, most: int) -> list[Cluster]:
    import msgspec

    from turnout_sidecar.classifiers.embedded import build_embedded
    from turnout_sidecar.suggestion import clusters, read_log, undecided

    texts = undecided(read_log(log))
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
