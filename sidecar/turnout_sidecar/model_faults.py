"""What is wrong with the files of a model, told before an engine is started with them.

An engine says such things late, in its own words, or not at all. What it can start with is said as
a remark. Blocks: reads the beginnings of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from turnout_rules.model import Target
from turnout_sidecar.engines.arguments import value_of
from turnout_sidecar.engines.base import model_file
from turnout_sidecar.model_presence import model_obstacle
from turnout_sidecar.weight_files import (
    BrokenFile,
    check_not_a_stranger,
    look_at_gguf,
    look_at_safetensors,
    parse_json,
)

_PART = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf|\.safetensors)\Z")
_NO_MODELS = {
    "mmproj": "is a projector, which goes beside a model: set model_path to the model itself",
    "clip": "is a projector, which goes beside a model: set model_path to the model itself",
    "adapter": "is an adapter, which goes beside a model: set model_path to the model itself",
    "imatrix": "is an importance matrix and no model",
}
"""By `general.type`, or in older files by `general.architecture`."""
_UNFINISHED = ("*.incomplete", "*.part", "*.partial", "*.crdownload", "*.aria2", "*.download")
_PROJECTOR_FLAGS = ("--mmproj", "-mm", "--mmproj-url", "-mmu", "--no-mmproj")


class Fault(msgspec.Struct, frozen=True):
    """One thing about a model's files."""

    message: str
    remedy: str = ""
    is_fatal: bool = True
    """False: it starts, and is probably not what was meant."""


def faults_of(target: Target) -> tuple[Fault, ...]:
    """Everything wrong with the files of a managed `target`; the name of a hub model is fine."""
    model, engine = target.model, target.upstream.engine
    if not model.model_path:
        return ()
    why, remedy = model_obstacle(target.upstream, model)
    if why:
        return (Fault(why, remedy),)
    path = Path(model_file(model)).expanduser()
    try:
        if not path.exists():
            return ()
        if path.is_dir():
            return tuple(_in_folder(path, engine or ""))
        found = tuple(_in_file(path, engine or ""))
        if engine == "llamacpp" and not found:
            found = tuple(_beside(path, model.args))
        return found
    except OSError as error:
        return (Fault(f"{path} cannot be read ({error.strerror})"),)


def _in_file(path: Path, engine: str) -> Iterator[Fault]:
    parts = _PART.search(path.name)
    if parts and int(parts[1]) != 1:
        first = f"{path.name[: parts.start()]}-00001-of-{parts[2]}{parts[3]}"
        yield Fault(f"{path} is not the first of its parts", f"set model_path to {first}")
        return
    for part in _parts(path):
        if part.exists():
            yield from _one_file(part, engine, is_first=part == path)
        else:
            yield Fault(
                f"{path} comes in {int(parts[2]) if parts else 1} parts, and "
                f"{part.name} is missing",
                "fetch it",
            )


def _one_file(path: Path, engine: str, *, is_first: bool) -> Iterator[Fault]:
    try:
        if path.suffix == ".safetensors":
            look_at_safetensors(path)
        elif path.suffix != ".gguf" and engine != "llamacpp":
            check_not_a_stranger(path)
        else:
            seen = look_at_gguf(path)
            kind = seen.texts.get("general.type", "")
            what = _NO_MODELS.get(kind) or _NO_MODELS.get(
                seen.texts.get("general.architecture", "")
            )
            if what:
                yield Fault(f"{path} {what}")
            elif is_first and not seen.tensors and not _PART.search(path.name):
                yield Fault(f"{path} holds no weights (a vocabulary alone, or a broken file)")
    except BrokenFile as broken:
        message, _, remedy = str(broken).partition("; ")
        yield Fault(f"{path} {message}", remedy)


def _parts(path: Path) -> list[Path]:
    found = _PART.search(path.name)
    if found is None:
        return [path]
    stem, count, suffix = path.name[: found.start()], int(found[2]), found[3]
    return [path.with_name(f"{stem}-{n:05}-of-{count:05}{suffix}") for n in range(1, count + 1)]


def _beside(path: Path, args: tuple[str, ...]) -> Iterator[Fault]:
    """A model that could see or hear, started without what it needs for that."""
    is_given = any(value_of(args, flag) or flag in args for flag in _PROJECTOR_FLAGS)
    if is_given:
        return
    for projector in sorted(path.parent.glob("*.gguf")):
        if "mmproj" in projector.name.lower() and projector != path:
            yield Fault(
                f"the projector {projector.name} lies beside the model and is not used, so the "
                "model sees no images",
                f"add `args: [--mmproj, {projector}]`, or `args: [--no-mmproj]` if that is meant",
                is_fatal=False,
            )
            return


def _in_folder(folder: Path, engine: str) -> Iterator[Fault]:
    ggufs = sorted(f for f in folder.glob("*.gguf") if "mmproj" not in f.name.lower())
    try:
        config = parse_json(folder / "config.json")
        index = parse_json(folder / "model.safetensors.index.json")
    except BrokenFile as broken:
        yield Fault(f"a JSON file in {folder} {broken}", "fetch it again")
        return
    if config is None and not ggufs:
        yield Fault(f"there is no config.json in {folder}", "fetch the whole model")
    weights = sorted({*folder.glob("*.safetensors"), *folder.glob("*.bin"), *folder.glob("*.pt")})
    named = set((index or {}).get("weight_map", {}).values()) if index else set()
    named |= {part.name for file in weights for part in _parts(file)}
    if missing := sorted(name for name in named if not (folder / str(name)).is_file()):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield Fault(f"{folder} lacks {missing[0]}{more}", "fetch the whole model")
    elif not weights and not ggufs:
        begun = [f.name for pattern in _UNFINISHED for f in folder.glob(pattern)]
        why = f" (only {begun[0]}, a download that has not ended)" if begun else ""
        yield Fault(f"there are no weights in {folder}{why}", "fetch the whole model")
    for file in weights:
        yield from _one_file(file, engine, is_first=True)
