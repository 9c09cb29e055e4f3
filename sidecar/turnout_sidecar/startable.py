"""Whether an engine can be started here, and with which command line: files, variables, program.

Asked by the supervisor before each start, by `turnout check` and by the doctor, so that all say the
same. Blocks: looks at files.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from turnout_rules.model import Target
from turnout_sidecar.engines import engine_for
from turnout_sidecar.engines.base import CannotLaunch, Launch, Place
from turnout_sidecar.engines.environment import with_own_variables
from turnout_sidecar.model_faults import faults_of


def launch_of(target: Target, place: Place, own: Mapping[str, str]) -> Launch:
    """The command line for `target`; raises `CannotLaunch` with what is missing and the remedy.

    `own` is the environment that references in `env:` are filled in from.
    """
    target = with_own_variables(target, own)
    for fault in faults_of(target):
        if fault.is_fatal:
            remedy = f"; {fault.remedy}" if fault.remedy else ""
            raise CannotLaunch(f"{target.name}: {fault.message}{remedy}")
    launch = engine_for(target.upstream).launch(target, place)
    program = launch.command[0]
    if program.startswith("~"):
        program = str(Path(program).expanduser())
    path = launch.env.get("PATH", place.environ.get("PATH"))
    if shutil.which(program, path=path) is None:
        raise CannotLaunch(
            f"{target.name}: there is no program {launch.command[0]}; "
            "install it, or correct `command:` or `python:` of this model"
        )
    return msgspec.structs.replace(launch, command=(program, *launch.command[1:]))


def obstacle(target: Target, environ: Mapping[str, str]) -> tuple[str, str]:
    """Why `target` cannot be started with this environment, and the remedy; empty: it can."""
    try:
        launch_of(target, Place(port=1, threads=1, environ=environ), environ)
    except CannotLaunch as error:
        message, _, remedy = str(error).partition("; ")
        return message, remedy
    return "", ""


def remarks(target: Target) -> list[tuple[str, str]]:
    """What of its files is probably not meant, and the remedy."""
    return [
        (f"{target.name}: {fault.message}", fault.remedy)
        for fault in faults_of(target)
        if not fault.is_fatal
    ]
