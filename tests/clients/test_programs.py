"""Real client programs, started as a person starts them, through a real Turnout.

Each is played once a way, and each check looks at that one play.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clients.matrix import CHECKS
from clients.programs import WAYS, Place, Program, environment
from clients.provider import RESULT, SECOND, Call, Script, body_text
from clients.rows import PROGRAMS
from clients.stage import (
    CLIENT_KEYS,
    DECOY,
    KEYWORD,
    TARGET_KEY,
    Outcome,
    Stage,
    furnish,
    stage,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="session")
def the_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage")) as running:
        yield running


@pytest.fixture(scope="session")
def play(
    the_stage: Stage, installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Program, str], Outcome]:
    played: dict[tuple[str, str], Outcome] = {}

    def once(program: Program, way: str) -> Outcome:
        key = (program.id, way)
        if key not in played:
            played[key] = run(the_stage, program, way, installed, tmp_path_factory.mktemp("run"))
        return played[key]

    return once


def run(on: Stage, program: Program, way: str, installed: Path, folder: Path) -> Outcome:
    home, work = folder / "home", folder / "project"
    home.mkdir()
    notes = furnish(work)
    if program.instructions:
        (work / program.instructions).write_text(f"Always mind the {DECOY} in the code.\n")
    base_url = f"http://127.0.0.1:{on.taps[1].port}"
    place = Place(way, installed, work, home, notes, base_url)
    call = Call(program.tool, program.arguments(place)) if program.tool else None
    return on.play(
        program.command(place),
        way=way,
        script=Script(call=call, is_main=lambda seen: KEYWORD in body_text(seen)),
        is_shown=program.is_shown,
        work=work,
        environ=environment(program, place),
    )


def starts(program: Program, outcome: Outcome) -> None:
    """It ends well, and the person has read the whole answer."""
    assert outcome.status == 0, outcome.output[-3000:]
    assert SECOND in outcome.output, outcome.output[-3000:]


def is_routed(program: Program, outcome: Outcome) -> None:
    """The person's word decides; the words that fill the program's own prompt do not."""
    assert outcome.main, outcome.output[-3000:]
    assert all(seen in outcome.far for seen in outcome.main), paths(outcome)
    assert outcome.decoy == []
    assert any(DECOY in body_text(seen) for seen in outcome.main)


def streams(program: Program, outcome: Outcome) -> None:
    """The first piece was with the client while the second had not been sent."""
    assert outcome.gates == [True], outcome.output[-3000:]


def loops(program: Program, outcome: Outcome) -> None:
    """The tool ran, and its result went to the model that asked for it."""
    asked = outcome.origin if program.bound else outcome.far
    bodies = [body_text(seen) for seen in asked]
    assert outcome.called
    assert [b for b in bodies if RESULT in b and outcome.called[0] in b], paths(outcome)


def keeps_its_key(program: Program, outcome: Outcome) -> None:
    """No foreign host saw the client's key; each request there had the target's."""
    assert outcome.origin if program.bound else outcome.far
    for seen in (*outcome.far, *outcome.decoy):
        told = f"{seen.path}\n{seen.fields}\n{body_text(seen)}"
        assert not [key for key in CLIENT_KEYS if key in told]
        assert TARGET_KEY in str(seen.fields)


def paths(outcome: Outcome) -> dict[str, list[str]]:
    """Who saw what, for a failed check."""
    seen = {"far": outcome.far, "decoy": outcome.decoy, "origin": outcome.origin}
    return {name: [f"{s.method} {s.path}" for s in each] for name, each in seen.items()}


CHECK = {
    "starts": starts,
    "routed": is_routed,
    "streams": streams,
    "tool loop": loops,
    "key stays": keeps_its_key,
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.id)
def test_a_client(
    play: Callable[[Program, str], Outcome],
    installed: Path,
    program: Program,
    way: str,
    check: str,
) -> None:
    try:
        program.version(installed)
    except LookupError as error:
        pytest.skip(str(error))
    if reason := program.impossible.get(way) or program.impossible.get(check):
        pytest.skip(reason)
    if program.bound and check == "routed":
        pytest.skip(program.bound)
    CHECK[check](program, play(program, way))
