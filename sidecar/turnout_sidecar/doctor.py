"""`turnout doctor`: looks over rules, set-up and machine, and says what to do about what it finds.

Only looks: starts nothing, ends nothing, writes nothing, and never shows a key.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from turnout_rules.folders import data_folder, proxy_folder, runtime_folder
from turnout_rules.loading import Folder, build_rules, read_folder
from turnout_rules.model import Target, Upstream
from turnout_rules.probes import run_probes
from turnout_rules.problems import Problem, RulesError
from turnout_rules.targets import Targets, UnknownTarget
from turnout_sidecar.doctor_machine import look_at_machine
from turnout_sidecar.doctor_setup import look_at_setup
from turnout_sidecar.finding import Finding, Scene
from turnout_sidecar.machine import MachineProbe
from turnout_sidecar.model_store import models_folder

# Long enough for a rate, short enough not to be waited for.
SWAP_LOOK_S = 0.25


def examine(
    rules: Path,
    environ: Mapping[str, str],
    *,
    probe: MachineProbe | None = None,
    own_ports: Iterable[int] = (),
    trust_variables: tuple[str, ...] = (),
) -> list[Finding]:
    """All findings, in the order in which a person would look. Blocks for half a second."""
    probe = probe or MachineProbe()
    machine = probe.look()
    began = time.monotonic()
    read = read_folder(rules)
    targets, used = _targets(read)
    settings = read.settings
    data = settings.sidecar.data_dir
    scene = Scene(
        settings=settings,
        environ=environ,
        machine=machine,
        runtime_dir=runtime_folder(environ),
        models_dir=models_folder(),
        data_dir=Path(data).expanduser() if data else data_folder(environ),
        proxy_dir=proxy_folder(environ),
        targets=targets,
        used=used,
        own_ports=frozenset(own_ports),
        trust_variables=trust_variables,
    )
    findings = [*_look_at_rules(read), *look_at_setup(scene)]
    time.sleep(max(0.0, SWAP_LOOK_S - (time.monotonic() - began)))
    scene = replace(scene, swap_in_mb_s=probe.look().swap_in_mb_s)
    return [*findings, *look_at_machine(scene)]


def _look_at_rules(read: Folder) -> Iterator[Finding]:
    """Valid, and their probes met: what `turnout check` says, in one line."""
    problems: list[Problem] = list(read.problems)
    unmet = 0
    if not any(p.severity == "error" for p in problems):
        try:
            rules = build_rules(read)
        except RulesError as error:
            problems = error.problems
        else:
            outcomes = run_probes(rules.table, rules.settings.reading, rules.probes)
            unmet = sum(not outcome.is_met for outcome in outcomes)
    errors = sorted(p for p in problems if p.severity == "error")
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        remedy = f"turnout check {read.path}"
        yield Finding(check="rules", state="fail", message=f"{errors[0]}{more}", remedy=remedy)
    elif unmet:
        message = f"{read.path}: {unmet} of {len(read.probes)} probes are not met"
        remedy = f"turnout test {read.path}"
        yield Finding(check="rules", state="fail", message=message, remedy=remedy)
    elif problems:
        message = f"{read.path}: valid, {len(problems)} warning{'s' * (len(problems) > 1)}"
        remedy = f"turnout check {read.path}"
        yield Finding(check="rules", state="warn", message=message, remedy=remedy)
    else:
        message = f"{read.path}: {len(read.drafts)} routes, {len(read.upstreams)} upstreams"
        yield Finding(check="rules", state="ok", message=message)


def _targets(read: Folder) -> tuple[tuple[Target, ...], frozenset[str]]:
    """Every model that upstreams list or routes name, and the names that routes send to."""
    named = {name for route in read.routes for name in (*(t for t, _ in route.targets),)}
    named |= {name for route in read.routes for name in route.fallback}
    resolver = Targets(read.upstreams)
    found: dict[str, Target] = {}
    for name in (*_listed(read.upstreams.values()), *sorted(named)):
        try:
            found[name] = resolver.resolve(name)
        except UnknownTarget:
            continue  # `pass`, `block`, captures; a mistake among them is a finding of the rules
    return tuple(found.values()), frozenset(named & found.keys())


def _listed(upstreams: Iterable[Upstream]) -> Iterator[str]:
    for upstream in upstreams:
        for model in upstream.models:
            yield f"{upstream.name}/{model}"
