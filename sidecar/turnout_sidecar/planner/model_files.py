"""A model's files on disk: how many bytes of weights, and the shape. Reads headers only.

Takes a GGUF file (also the first of several parts), a folder with `config.json` and safetensors, or
the name of a hub model whose snapshot lies in the Hugging Face cache.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from turnout_sidecar.planner.config_shape import shape_of_config
from turnout_sidecar.planner.gguf import GgufError, read_header
from turnout_sidecar.planner.gguf_shape import shape_of_gguf
from turnout_sidecar.planner.measured import Measured, digest_of
from turnout_sidecar.planner.projector import projector_bytes
from turnout_sidecar.planner.shape import Shape

_MAX_JSON_BYTES = 16 << 20
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf\Z")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+\Z")


class UnreadableModelError(Exception):
    """Nothing can be planned from these files; the message says which and why."""


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    weight_bytes: int
    shape: Shape | None
    """None: only the files' size is known."""
    source: str
    """Where the figures come from, for people."""
    is_quantized: bool = False
    """Whether the files already hold quantized weights."""
    scratch_bytes: int = 0
    """Of a projector: what it works in."""
    draft: ModelFiles | None = None
    """The model that guesses ahead for this one."""
    projector: ModelFiles | None = None
    digest: str = ""
    """Of a model whose family is not known: what its measurement is kept by."""
    measured: Measured | None = None


def read_model(path: str) -> ModelFiles:
    """What lies at `path`; raises UnreadableModelError. Blocks: reads files."""
    place = Path(path).expanduser()
    if not place.exists() and _HUB_NAME.match(path):
        place = _hub_snapshot(path) or place
    try:
        if place.is_file():
            return _read_file(place)
        if place.is_dir():
            return _read_folder(place)
    except OSError as error:
        raise UnreadableModelError(f"{place}: {error.strerror}") from error
    raise UnreadableModelError(f"there is no model at {path}")


def _read_file(path: Path) -> ModelFiles:
    size = sum(part.stat().st_size for part in _parts(path))
    if path.suffix != ".gguf":
        return ModelFiles(weight_bytes=size, shape=None, source="file size")
    try:
        header = read_header(path)
        if header.get("general.architecture") == "clip":
            scratch, shape = projector_bytes(header), None
        else:
            scratch, shape = 0, shape_of_gguf(header)
    except (GgufError, ValueError) as error:
        raise UnreadableModelError(f"{path}: {error}") from error
    return ModelFiles(
        weight_bytes=size,
        shape=shape,
        source="GGUF header",
        is_quantized=True,
        scratch_bytes=scratch,
        digest=digest_of([path]) if shape and shape.is_guess else "",
    )


def _parts(path: Path) -> list[Path]:
    found = _PART.search(path.name)
    if found is None:
        return [path]
    stem, count = path.name[: found.start()], int(found[2])
    names = [f"{stem}-{n:05}-of-{count:05}.gguf" for n in range(1, count + 1)]
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise UnreadableModelError(f"{path.parent}: the part {missing[0]} is missing")
    return [path.parent / name for name in names]


def _read_folder(folder: Path) -> ModelFiles:
    config = _read_json(folder / "config.json")
    if config is None:
        ggufs = sorted(folder.glob("*.gguf"))
        if len(ggufs) == 1 or (ggufs and _PART.search(ggufs[0].name)):
            return _read_file(ggufs[0])
        raise UnreadableModelError(f"{folder}: there is no config.json")
    try:
        shape = shape_of_config(config)
    except ValueError as error:
        raise UnreadableModelError(f"{folder / 'config.json'}: {error}") from error
    is_quantized = isinstance(config.get("quantization_config"), dict)
    stored, source = _stored_bytes(folder)
    if not stored:
        stored = int(
            shape.embedding_parameters * 2 + shape.linear_parameters * shape.weight_bits / 8
        )
        source = "estimated from config.json"
    return ModelFiles(
        weight_bytes=stored,
        shape=shape,
        source=source,
        is_quantized=is_quantized,
        digest=digest_of([folder / "config.json"]) if shape.is_guess else "",
    )


def _stored_bytes(folder: Path) -> tuple[int, str]:
    """Bytes of weights and where the number is from; 0 if there are no weights."""
    index = _read_json(folder / "model.safetensors.index.json")
    total = (index or {}).get("metadata", {}).get("total_size")
    if isinstance(total, int) and total > 0:
        return total, "safetensors index"
    for pattern in ("*.safetensors", "*.bin", "*.pt"):
        sizes = [file.stat().st_size for file in folder.glob(pattern) if file.is_file()]
        if sizes:
            return sum(sizes), f"sizes of {pattern}"
    return 0, ""


def _read_json(path: Path) -> dict[str, Any] | None:
    """None if there is no such file."""
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise UnreadableModelError(f"{path} is larger than {_MAX_JSON_BYTES} bytes")
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise UnreadableModelError(f"{path} is no JSON") from error
    if not isinstance(value, dict):
        raise UnreadableModelError(f"{path} holds no object")
    return value


def _hub_snapshot(name: str) -> Path | None:
    """The newest snapshot of a hub model in the local cache (huggingface_hub's layout)."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or f"{home}/hub"
    folder = Path(cache).expanduser() / f"models--{name.replace('/', '--')}" / "snapshots"
    try:
        snapshots = [path for path in folder.iterdir() if (path / "config.json").exists()]
        return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)
    except OSError:
        return None
