"""What the sidecar's process holds with the sentence encoder loaded."""

from __future__ import annotations

from pathlib import Path

import httpx2
import msgspec
import psutil
import pytest

from sidecar.classifier_tables import ENGLISH, fetched_models
from sidecar_kit import sidecar_process, write_rules

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("fetched_models")]
__all__ = ["fetched_models"]
MOST_BYTES = 350 * 1000 * 1000


def test_the_whole_sidecar_stays_small_with_the_encoder_loaded(
    tmp_path: Path, fetched_models: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"TURNOUT_{name}_DIR", str(tmp_path / name.lower()))
    routes = [{"name": n, "target": "one/m", "examples": list(e)} for n, e in ENGLISH.items()]
    upstreams = "upstreams:\n  one: {base_url: 'http://127.0.0.1:9/v1'}\n"
    rules = write_rules(
        tmp_path / "rules", msgspec.yaml.encode({"routes": routes}).decode(), upstreams
    )
    (rules / "turnout.yaml").write_text("classifier: {kind: embedded}\n")
    with sidecar_process(rules, tmp_path) as (child, ready), httpx2.Client(trust_env=False) as http:
        url = f"http://127.0.0.1:{ready['port']}"
        asked = [f"will it rain in {i} days" for i in range(40)] + ["长" * 64_000]
        layers = {http.post(f"{url}/route", json={"text": t}).json()["layer"] for t in asked}
        assert "semantic" in layers, "the encoder is in use"
        assert psutil.Process(child.pid).memory_info().rss <= MOST_BYTES
