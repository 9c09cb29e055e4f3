"""`turnout check [DIR]`: everything that is wrong with a rules folder, with place and remedy."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from turnout_rules.model import Model, Route, Target, Upstream
from turnout_rules.problems import Problem, RulesError
from turnout_rules.variables import names_in

if TYPE_CHECKING:
    from turnout_rules.loading import Rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A folder, and the forms of the answer."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="DIR",
        help="rules folder (default: as `turnout up`)",
    )
    parser.add_argument(
        "--rules", type=Path, metavar="DIR", help="the same, as other commands name it"
    )
    parser.add_argument("--json", action="store_true", help="print problems and summary as JSON")
    parser.add_argument(
        "--semantic",
        action="store_true",
        help="also find examples that lie nearer to another route (loads the encoder)",
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of rule files")


def run(args: argparse.Namespace) -> int:
    """Print problems as `file:line:col: error: …`; 1 if one is an error."""
    if args.schema:
        from turnout_rules.starter import schema_text

        sys.stdout.write(schema_text())
        return 0
    from turnout_rules.loading import find_rules_folder

    folder = find_rules_folder(args.folder or args.rules)
    problems, summary = check(folder, is_semantic=args.semantic)
    has_errors = any(p.severity == "error" for p in problems)
    if args.json:
        report = {"folder": str(folder), "ok": not has_errors, "problems": problems, **summary}
        print(msgspec.json.encode(report).decode())
        return int(has_errors)
    for problem in problems:
        print(problem)
    print(_sentence(folder, problems, summary))
    return int(has_errors)


def check(folder: Path, *, is_semantic: bool = False) -> tuple[list[Problem], dict[str, int | str]]:
    """All problems, errors first, and the figures of the summary."""
    from turnout_rules.loading import build_rules, read_folder
    from turnout_rules.probes import problem_of, run_probes
    from turnout_sidecar.teaching_lint import contradictions

    read = read_folder(folder)
    problems = list(read.problems)
    if not any(p.severity == "error" for p in problems):
        used = {target.partition("/")[0] for route in read.routes for target in _targets(route)}
        problems += _missing_keys(u for name, u in read.upstreams.items() if name in used)
        problems += _missing_models(read.upstreams.values())
        problems += _missing_variables(read.upstreams.values())
        problems += _cannot_start(read.upstreams.values())
        try:
            rules = build_rules(read)
        except RulesError as error:
            problems += [p for p in error.problems if p not in problems]
        else:
            outcomes = run_probes(rules.table, rules.settings.reading, rules.probes)
            problems += [problem_of(outcome) for outcome in outcomes if not outcome.is_met]
            problems += contradictions(rules.table)
            if is_semantic:
                problems += _misplaced(rules, folder)
    summary: dict[str, int | str] = {
        "files": len(read.files),
        "routes": len(read.drafts),
        "upstreams": len(read.upstreams),
        "probes": len(read.probes),
        "version": read.version,
    }
    return sorted(problems, key=lambda p: (p.severity != "error", p)), summary


def _misplaced(rules: Rules, folder: Path) -> list[Problem]:
    """Examples that lie nearer to another route; a classifier that is not there is a warning."""
    import asyncio

    from turnout_cli.teaching import ready_classifier
    from turnout_sidecar.classifiers import ClassifierError
    from turnout_sidecar.classifiers.embedded import EmbeddedClassifier
    from turnout_sidecar.teaching_lint import misplaced

    async def look() -> list[Problem]:
        classifier, _ = await ready_classifier(rules)
        try:
            if isinstance(classifier, EmbeddedClassifier):
                return await misplaced(rules.table, classifier)
            return []
        finally:
            await classifier.close()

    try:
        return asyncio.run(look())
    except ClassifierError as error:
        return [Problem(str(folder), 0, 0, "warning", "no-classifier", str(error))]


def _targets(route: Route) -> tuple[str, ...]:
    return (*(target for target, _ in route.targets), *route.fallback)


def _missing_keys(upstreams: Iterable[Upstream]) -> list[Problem]:
    """Keys that are not there now: no error, since another machine or shell may have them."""
    found = []
    for upstream in upstreams:
        where = (upstream.place.file, upstream.place.line, upstream.place.column)
        name = upstream.api_key_env
        if name and not os.environ.get(name):
            message = f"upstream `{upstream.name}` has no key: {name} is not set"
            remedy = f"export {name}=…, or its requests are refused"
            found.append(Problem(*where, "warning", "key-not-set", message, remedy))
        file = upstream.api_key_file
        if file and not Path(file).expanduser().is_file():
            message = f"upstream `{upstream.name}` has no key: {file} does not exist"
            found.append(Problem(*where, "warning", "key-not-set", message, "create it"))
    return found


def _missing_models(upstreams: Iterable[Upstream]) -> list[Problem]:
    """Models of local engines that are not here: no error, since another machine may run them."""
    from turnout_sidecar.model_presence import model_obstacle

    found = []
    for upstream in upstreams:
        if not upstream.is_managed:
            continue
        for model in upstream.models.values():
            obstacle, remedy = model_obstacle(upstream, model)
            if obstacle:
                where = (model.place.file, model.place.line, model.place.column)
                message = f"`{upstream.name}/{model.name}` cannot start here: {obstacle}"
                found.append(Problem(*where, "warning", "model-not-here", message, remedy))
    return found


def _missing_variables(upstreams: Iterable[Upstream]) -> list[Problem]:
    """What `env:` of an engine hands on, and is not there now; no error, as with keys."""
    found = []
    for model in (model for upstream in upstreams for model in upstream.models.values()):
        wanted = {name for value in model.env.values() for name in names_in(value)}
        for name in sorted(wanted - os.environ.keys()):
            where = (model.place.file, model.place.line, model.place.column)
            message = f"`env:` of model `{model.name}` needs {name}, which is not set"
            remedy = f"export {name}=…, or its engine does not start"
            found.append(Problem(*where, "warning", "variable-not-set", message, remedy))
    return found


def _cannot_start(upstreams: Iterable[Upstream]) -> list[Problem]:
    """Engines without their files or program here, and files that are broken; no error, as keys."""
    from turnout_sidecar.model_presence import model_obstacle
    from turnout_sidecar.startable import obstacle, remarks

    found = []
    for upstream in upstreams:
        for model in upstream.models.values() if upstream.is_managed else ():
            target = Target(f"{upstream.name}/{model.name}", upstream, model)
            where = (model.place.file, model.place.line, model.place.column)
            why, remedy = obstacle(target, os.environ)
            is_absent = bool(model_obstacle(upstream, model)[0])  # said for itself
            if why and not is_absent and not _needs_variable(model):
                found.append(Problem(*where, "warning", "cannot-start", why, remedy))
            for remark, advice in [] if why else remarks(target):
                found.append(Problem(*where, "warning", "unused-file", remark, advice))
    return found


def _needs_variable(model: Model) -> bool:
    """Whether an unset variable is in the way, which is said for itself."""
    return any(name not in os.environ for v in model.env.values() for name in names_in(v))


def _sentence(folder: Path, problems: list[Problem], summary: dict[str, int | str]) -> str:
    errors = sum(p.severity == "error" for p in problems)
    warnings = len(problems) - errors
    state = f"{errors} error{'s' * (errors != 1)}" if errors else "ok"
    if warnings:
        state += f", {warnings} warning{'s' * (warnings != 1)}"
    counts = ", ".join(f"{summary[k]} {k}" for k in ("files", "routes", "upstreams", "probes"))
    return f"{folder}: {state} ({counts})"
