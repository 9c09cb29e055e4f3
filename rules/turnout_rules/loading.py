"""A rules folder becomes `Rules`: every `*.yaml` read, merged, linted, and built into one table.

Everything wrong in all files is reported in one pass. Nothing is kept between loads and nothing is
changed: a load either gives a whole new `Rules` or raises `RulesError`.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from turnout_rules.contents import read_limited
from turnout_rules.document import Document
from turnout_rules.folders import config_folder
from turnout_rules.lint import lint
from turnout_rules.model import Model, Place, Route, Upstream
from turnout_rules.probes import Probe, read_probes
from turnout_rules.problems import Problem, RulesError
from turnout_rules.schema import RouteDraft, read_routes
from turnout_rules.scripts import Script, load_script
from turnout_rules.settings import Settings
from turnout_rules.settings_loading import SETTINGS_TOP_KEYS, SettingsDraft
from turnout_rules.table import Table, build_table
from turnout_rules.upstream_schema import read_upstreams
from turnout_rules.yaml_source import parse

ROUTING_TOP_KEYS = ("routes", "upstreams", "probes")
TOP_KEYS = (*ROUTING_TOP_KEYS, *SETTINGS_TOP_KEYS)
_SUFFIXES = (".yaml", ".yml")
_IMPLICIT = {
    "api": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "vllm": ("http://127.0.0.1:8000/v1", ""),
}
"""What the names of the older configuration mean in a folder that has no `upstreams:` at all."""


@dataclass(frozen=True)
class Rules:
    """A rules folder, loaded."""

    table: Table
    settings: Settings
    warnings: tuple[Problem, ...]
    files: tuple[Path, ...]
    version: str
    """Changes when any byte of the folder's files changes."""
    probes: tuple[Probe, ...] = ()
    scripts: dict[str, Script] = field(default_factory=dict)


@dataclass
class Folder:
    """A rules folder as read, before the table is built."""

    path: Path
    files: tuple[Path, ...] = ()
    version: str = ""
    problems: list[Problem] = field(default_factory=list)
    drafts: list[RouteDraft] = field(default_factory=list)
    upstreams: dict[str, Upstream] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    scripts: dict[str, Script] = field(default_factory=dict)
    draft_settings: SettingsDraft = field(default_factory=SettingsDraft)
    has_upstreams: bool = False
    is_whole: bool = True
    """False: a file cannot be read or parsed, so what they say about each other is not known."""

    @property
    def routes(self) -> tuple[Route, ...]:
        """All routes, in file order."""
        return tuple(draft.route for draft in self.drafts)

    @property
    def settings(self) -> Settings:
        """The merged settings."""
        return self.draft_settings.settings()

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What works and is probably not meant."""
        return tuple(sorted(p for p in self.problems if p.severity == "warning"))

    def checked(self) -> Folder:
        """Itself; raises RulesError, with all problems, if any is an error."""
        if any(p.severity == "error" for p in self.problems):
            raise RulesError(self.problems)
        return self


def load_rules(folder: Path) -> Rules:
    """Load a rules folder; raises RulesError with everything that is wrong with it."""
    with _no_collections():
        return build_rules(read_folder(folder))


def build_rules(read: Folder) -> Rules:
    """The rules of a folder that was read; raises RulesError with all its problems."""
    read.checked()
    settings = read.settings
    table = build_table(
        read.routes,
        read.upstreams,
        version=read.version,
        scripts=read.scripts,
        observe=settings.observe,
    )
    return Rules(
        table=table,
        settings=settings,
        warnings=read.warnings,
        files=read.files,
        version=read.version,
        probes=tuple(read.probes),
        scripts=read.scripts,
    )


def find_rules_folder(explicit: Path | None) -> Path:
    """`explicit`, else `./rules` if rule files lie there, else the person's own folder."""
    if explicit is not None:
        return explicit
    local = Path("rules")
    return local if rule_files(local) else config_folder()


def rule_files(folder: Path) -> list[Path]:
    """The folder's rule files by name; hidden ones (editors' and mounts' own) do not count."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    return [p for p in found if p.suffix in _SUFFIXES and not p.name.startswith(".")]


def read_folder(folder: Path) -> Folder:
    """Read, merge and lint all files; problems are collected, nothing is raised."""
    read = Folder(folder)
    digest = hashlib.sha256()
    contents = []
    for path in rule_files(folder):
        try:
            data = read_limited(path)
        except OSError as error:
            read.problems.append(_unreadable(path, error))
            read.is_whole = False
            continue
        digest.update(f"{path.name}\0{len(data)}\0".encode() + data)
        contents.append((path, data))
    read.files = tuple(path for path, _ in contents)
    if not contents and not read.problems:
        remedy = "`turnout init` writes starter rules"
        message = "there is no such folder"
        if folder.is_dir():
            message = "there are no rule files (*.yaml) in this folder"
        read.problems.append(Problem(str(folder), 0, 0, "error", "no-rules", message, remedy))
    for path, data in contents:
        _read_file(read, str(path), data)
    _add_implied_upstreams(read)
    _load_scripts(read, digest)
    read.version = digest.hexdigest()[:12]
    if read.is_whole:
        read.problems += lint(read.drafts, read.upstreams)
        _check_probes(read)
    return read


def _unreadable(path: Path, error: OSError) -> Problem:
    message = f"cannot be read: {error.strerror or error}"
    return Problem(str(path), 0, 0, "error", "unreadable-file", message)


def _read_file(read: Folder, label: str, data: bytes) -> None:
    known_problems = len(read.problems)
    root = parse(label, data, read.problems)
    if root is None:
        read.is_whole &= len(read.problems) == known_problems
        return
    doc = Document(label, read.problems)
    known = {*TOP_KEYS, *(key.value for key, _ in root.value if _is_extension(key.value))}
    for name, (_, node) in doc.fields(root, "a rule file", known).items():
        if name == "routes":
            read.drafts += read_routes(doc, node, len(read.drafts))
        elif name == "upstreams":
            read.has_upstreams = True
            for upstream in read_upstreams(doc, node):
                _add_upstream(read, upstream)
        elif name == "probes":
            read.probes += read_probes(doc, node)
        elif not _is_extension(name):
            read.draft_settings.read(doc, name, node)


def _is_extension(name: object) -> bool:
    """`x-…` keys hold anchors and notes, as in compose files."""
    return isinstance(name, str) and name.startswith("x-")


def _add_upstream(read: Folder, upstream: Upstream) -> None:
    first = read.upstreams.get(upstream.name)
    if first is None:
        read.upstreams[upstream.name] = upstream
        return
    message = f"upstream `{upstream.name}` is defined twice (first in {_spot(first.place)})"
    read.problems.append(_problem(upstream.place, "duplicate-upstream", message, "rename one"))


def _spot(place: Place) -> str:
    return f"{place.file}:{place.line}"


def _problem(place: Place, code: str, message: str, remedy: str = "") -> Problem:
    return Problem(place.file, place.line, place.column, "error", code, message, remedy)


def _add_implied_upstreams(read: Folder) -> None:
    """`inference:` is an upstream; without `upstreams:`, `api` and `vllm` mean what they say."""
    wanted: dict[str, dict[str, Place]] = {}
    for draft in read.drafts:
        for target in (*(t for t, _ in draft.route.targets), *draft.route.fallback):
            upstream, _, model = target.partition("/")
            wanted.setdefault(upstream, {}).setdefault(model, draft.place("target"))
    inference = read.draft_settings.inference
    if inference is not None and inference.name not in read.upstreams:
        read.upstreams[inference.name] = _with_wanted_models(read, inference, wanted)
    if read.has_upstreams:
        return
    for name, (url, key) in _IMPLICIT.items():
        if name in wanted and name not in read.upstreams:
            place = next(iter(wanted[name].values()))
            read.upstreams[name] = Upstream(name=name, base_url=url, api_key_env=key, place=place)
            with_key = f" with the key in {key}" if key else ""
            message = f"no `upstreams:` says what `{name}` is: taken to be {url}{with_key}"
            where = (place.file, place.line, place.column)
            remedy = f"write `upstreams: {{{name}: {{base_url: …}}}}`"
            read.problems.append(Problem(*where, "warning", "implicit-upstream", message, remedy))


def _with_wanted_models(
    read: Folder, upstream: Upstream, wanted: dict[str, dict[str, Place]]
) -> Upstream:
    """A managed `inference:` engine answers to every name that routes call it by."""
    if not upstream.is_managed:
        return upstream
    ((_, only),) = upstream.models.items()
    names = [n for n in wanted.get(upstream.name, ()) if n and "{" not in n] or [only.name]
    if len(names) > 1:
        place = upstream.place
        message = f"{', '.join(names)} are one `model_path`: each name runs an engine of its own"
        where = (place.file, place.line, place.column)
        remedy = "use one name in all routes"
        read.problems.append(Problem(*where, "warning", "engine-twice", message, remedy))
    models: dict[str, Model] = {n: msgspec.structs.replace(only, name=n) for n in names}
    return msgspec.structs.replace(upstream, models=models)


def _load_scripts(read: Folder, digest: hashlib._Hash) -> None:
    budget = read.settings.reading.script_budget_ms
    places: dict[str, Place] = {}
    for draft in read.drafts:
        if draft.route.script:
            places.setdefault(draft.route.script, draft.place("script"))
    for name, place in places.items():
        script = load_script(read.path, name, place, read.problems, budget)
        if script is not None:
            read.scripts[name] = script
            digest.update(f"{name}\0".encode() + read_limited(read.path / name))


def _check_probes(read: Folder) -> None:
    names = {draft.route.name for draft in read.drafts}
    for probe in read.probes:
        if probe.route and probe.route not in names:
            doc = Document(probe.place.file, read.problems)
            remedy = doc.did_you_mean(probe.route, names)
            message = f"a probe expects route `{probe.route}`, which does not exist"
            read.problems.append(_problem(probe.place, "unknown-route", message, remedy))


def settle_memory() -> None:
    """After a load or reload: collect once, then let collections pass by what is there to stay.

    A full collection walks a table of 10,000 routes for 40 ms and holds every thread up meanwhile;
    frozen objects are not walked. Unfreezing first keeps the garbage of older loads from staying.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@contextmanager
def _no_collections() -> Iterator[None]:
    """A load makes many objects and no cycles: collecting in between only costs time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
