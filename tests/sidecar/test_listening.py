"""Where the sidecar's socket lies when folders are deep."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from turnout_sidecar.listening import MAX_SOCKET_PATH_BYTES, open_socket, socket_path


@pytest.mark.parametrize("is_temp_deep", [False, True])
def test_the_socket_gets_a_short_path_however_deep_the_folders_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_temp_deep: bool
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setenv("TURNOUT_RUNTIME_DIR", str(deep))
    monkeypatch.setattr(tempfile, "tempdir", str(deep) if is_temp_deep else None)
    path = socket_path("")
    try:
        assert len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
        open_socket(path).close()
        assert path.parent.stat().st_mode & 0o077 == 0
    finally:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
