"""Hot reload: however a file is saved, the new rules come; a broken save changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from language_folders import UPSTREAMS, write_folder
from turnout_rules.loading import Rules, load_rules
from turnout_rules.problems import RulesError
from turnout_rules.request import Request
from turnout_rules.watching import RulesWatch

ROUTES = "routes:\n- {name: a, match: [code], target: api/one}\n"
CHANGED = ROUTES.replace("api/one", "api/second")


class Clock:
    """Polls a watch in steps of 0.1 s of invented time."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.now = 100.0
        self.watch = RulesWatch(folder, quiet_s=0.2, **options)

    def results(self, steps: int = 6) -> list[Rules | RulesError]:
        found = []
        for _ in range(steps):
            self.now += 0.1
            if (result := self.watch.poll(self.now)) is not None:
                found.append(result)
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "rules", routes=ROUTES, upstreams=UPSTREAMS)


def in_place(folder: Path) -> None:
    (folder / "routes.yaml").write_text(CHANGED)


def by_rename(folder: Path) -> None:
    (folder / "routes.yaml~").write_text(CHANGED)
    (folder / "routes.yaml~").rename(folder / "routes.yaml")


def delete_and_create(folder: Path) -> None:
    (folder / "routes.yaml").unlink()
    in_place(folder)


def same_size_and_time(folder: Path) -> None:
    path = folder / "routes.yaml"
    stat = path.stat()
    path.write_text(ROUTES.replace("api/one", "api/two"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def add_a_file(folder: Path) -> None:
    row = "routes:\n- {name: first, match: [code], target: api/second, priority: 9}\n"
    (folder / "more.yaml").write_text(row)


SAVES = [in_place, by_rename, delete_and_create, same_size_and_time, add_a_file]


def target_of(result: Rules | RulesError) -> str:
    assert isinstance(result, Rules), result
    return result.table.decide(Request.from_text("some code")).target


@pytest.mark.parametrize("save", SAVES)
def test_a_save_brings_new_rules_once(folder: Path, save: Callable[[Path], None]) -> None:
    clock = Clock(folder)
    assert clock.results() == []
    save(folder)
    (result,) = clock.results()
    assert target_of(result) in ("api/second", "api/two")


def test_a_swapped_symlink_brings_new_rules(tmp_path: Path) -> None:
    """As Kubernetes mounts do it: `..data` points to a dated folder, files point through it."""
    folder = tmp_path / "mount"
    write_folder(folder / "..one", routes=ROUTES, upstreams=UPSTREAMS)
    write_folder(folder / "..two", routes=CHANGED, upstreams=UPSTREAMS)
    (folder / "..data").symlink_to("..one")
    for name in ("routes.yaml", "upstreams.yaml"):
        (folder / name).symlink_to(f"..data/{name}")
    clock = Clock(folder)
    assert clock.results() == []
    (folder / "..new").symlink_to("..two")
    (folder / "..new").rename(folder / "..data")
    (result,) = clock.results()
    assert target_of(result) == "api/second"


def test_a_deleted_file_takes_its_routes_along(folder: Path) -> None:
    add_a_file(folder)
    clock = Clock(folder)
    (folder / "more.yaml").unlink()
    (result,) = clock.results()
    assert target_of(result) == "api/one"


def test_a_changed_script_reloads(folder: Path) -> None:
    (folder / "scripts").mkdir()
    script = folder / "scripts" / "pick.py"
    script.write_text("def choose(request):\n    return 'api/first'\n")
    route = "routes:\n- {name: a, match: [code], target: api/one, script: scripts/pick.py}\n"
    (folder / "routes.yaml").write_text(route)
    clock = Clock(folder)
    assert target_of(load_rules(folder)) == "api/first"
    script.write_text("def choose(request):\n    return 'api/other'\n")
    (result,) = clock.results()
    assert target_of(result) == "api/other"


def test_nothing_is_loaded_until_the_folder_is_quiet(folder: Path) -> None:
    clock = Clock(folder)
    for n in range(10):
        (folder / "routes.yaml").write_text(f"{ROUTES}# {n}\n" + "{[" * (n < 9))
        assert clock.results(steps=1) == []
    (result,) = clock.results()
    assert target_of(result) == "api/one"


def test_a_broken_save_is_reported_once_and_its_repair_loads(folder: Path) -> None:
    clock = Clock(folder)
    (folder / "routes.yaml").write_text("routes:\n- {name: a, target: nowhere/x}\n")
    (error,) = clock.results(steps=20)
    assert isinstance(error, RulesError)
    assert "unknown upstream `nowhere`" in str(error)
    (folder / "routes.yaml").write_text(ROUTES)
    (result,) = clock.results()
    assert target_of(result) == "api/one"


def test_a_deleted_folder_is_reported_once_and_may_come_back(folder: Path) -> None:
    clock = Clock(folder)
    folder.rename(folder.with_name("away"))
    (error,) = clock.results(steps=20)
    assert isinstance(error, RulesError)
    folder.with_name("away").rename(folder)
    (result,) = clock.results()
    assert isinstance(result, Rules)


def test_failing_probes_keep_the_old_rules_and_say_which(folder: Path) -> None:
    probe = "probes:\n- {text: my code, target: api/one}\n- {text: hello, target: pass}\n"
    (folder / "probes.yaml").write_text(probe)
    clock = Clock(folder)
    in_place(folder)
    (error,) = clock.results()
    assert isinstance(error, RulesError)
    (problem,) = error.problems
    assert (Path(problem.file).name, problem.line, problem.code) == (
        "probes.yaml",
        2,
        "probe-failed",
    )
    assert "target is api/second, not api/one" in problem.message


def test_a_change_between_load_and_watch_is_found_by_the_version(folder: Path) -> None:
    loaded = load_rules(folder)
    in_place(folder)
    clock = Clock(folder, version=loaded.version)
    (result,) = clock.results()
    assert target_of(result) == "api/second"


def test_a_save_that_changes_no_byte_brings_nothing(folder: Path) -> None:
    clock = Clock(folder, version=load_rules(folder).version)
    assert clock.results() == []
    (folder / "routes.yaml").write_text(ROUTES)
    (folder / "notes.txt").write_text("not ours")
    assert clock.results() == []
