"""What the teaching commands share: a trained classifier with a progress bar on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout_rules.loading import Rules
    from turnout_sidecar.classifiers import Classifier


@contextmanager
def working(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error (only on a terminal); call the result with how many more are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
    )
    is_shown = sys.stderr.isatty()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


def build(rules: Rules) -> Classifier:
    """The classifier of the settings; one of our own targets is asked through a running sidecar."""
    from turnout_sidecar.classifiers import build_classifier
    from turnout_sidecar.listening import read_record

    running = read_record()
    return build_classifier(rules.settings, socket=running.socket if running else "")


async def ready_classifier(rules: Rules) -> tuple[Classifier, float]:
    """The classifier of the settings, trained for the rules, and its threshold."""
    from turnout_sidecar.classifiers import ClassifierError

    if rules.settings.classifier.kind == "off":
        raise ClassifierError("the classifier is switched off in turnout.yaml (classifier: kind)")
    if not rules.table.semantic_routes:
        raise ClassifierError(
            "no route has examples or a description: give some routes `examples:` first"
        )
    classifier = build(rules)
    prepare: Any = classifier.prepare
    examples = sum(len(r.examples) + bool(r.description) for r in rules.table.semantic_routes)
    if rules.settings.classifier.kind == "embedded":
        with working("training", examples) as advance:
            seen = 0

            def follow(done: int, _total: int) -> None:
                nonlocal seen
                advance(done - seen)
                seen = done

            await prepare(rules.table, follow)
    else:
        await prepare(rules.table)
    threshold = getattr(classifier, "threshold", rules.settings.classifier.threshold)
    return classifier, 0.5 if threshold is None else float(threshold)
