"""Folders of their own for every test of the sidecar."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidecar's runtime, data and cache folders lie in `tmp_path`; one provider key is set."""
    monkeypatch.setenv("TURNOUT_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("TURNOUT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TURNOUT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ONE_KEY", "sk-the-targets-own")
