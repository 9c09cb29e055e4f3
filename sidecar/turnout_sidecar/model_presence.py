"""Whether the files of a model that Turnout would run are here. Looks at names, reads no file."""

from __future__ import annotations

from pathlib import Path

from turnout_rules.model import Model, Upstream
from turnout_sidecar import model_store
from turnout_sidecar.engines.base import model_file

# These take the name of a hub, too, and fetch it themselves.
_HUB_ENGINES = frozenset({"vllm"})
_MODEL_FILES = ("config.json", "params.json", "*.gguf")
"""What a folder with a model holds: Hugging Face's, Mistral's and llama.cpp's layout."""


def model_obstacle(upstream: Upstream, model: Model) -> tuple[str, str]:
    """Why its engine cannot find the model, and the remedy; empty: it can. Blocks."""
    if upstream.engine == "command" and not model.model_path:
        return "", ""
    file = model_file(model)
    path = Path(file).expanduser()
    if path.exists():
        return _folder_obstacle(upstream, path) if path.is_dir() else ("", "")
    if upstream.engine in _HUB_ENGINES and not _is_path(file):
        return "", ""
    if model.model_path in model_store.MODELS:
        return f"the model {file} is not fetched", "turnout models pull"
    where = "" if path.is_absolute() else f" in {Path.cwd()}"
    return f"there is no {file}{where}", "put the model there, or set `model_path`"


def _folder_obstacle(upstream: Upstream, folder: Path) -> tuple[str, str]:
    if upstream.engine == "command":
        return "", ""
    if upstream.engine == "llamacpp":
        return f"{folder} is a folder", "name the .gguf file in it"
    if not any(any(folder.glob(pattern)) for pattern in _MODEL_FILES):
        return f"{folder} holds no model (no config.json)", "fetch it again, or set `model_path`"
    return "", ""


def _is_path(name: str) -> bool:
    """Whether a `model_path` means a place on this disk: a hub's names are `owner/model`."""
    is_hub_name = name.count("/") <= 1 and not name.endswith((".gguf", "/"))
    return name.startswith((".", "/", "~")) or not is_hub_name
