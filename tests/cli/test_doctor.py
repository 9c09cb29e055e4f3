"""`turnout doctor` as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnout_cli.commands.doctor import running_ports
from turnout_cli.launching import Running, write_record
from turnout_cli.main import main

STATES = {"ok", "warn", "fail"}
PORTS = "proxy: {port: 0, base_url_port: 0, web_port: 0}\nsidecar: {port: 0}\n"


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rules folder that needs nothing, and folders of the test's own."""
    for name in ("DATA", "CACHE", "RUNTIME"):
        monkeypatch.setenv(f"TURNOUT_{name}_DIR", str(tmp_path / name.lower()))
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "routes.yaml").write_text("routes:\n  - {name: rest, match: [.*], target: pass}\n")
    (folder / "turnout.yaml").write_text(PORTS + "classifier: {kind: 'off'}\n")
    return folder


def test_findings_have_a_state_and_remedies_stand_under_them(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--rules", str(rules)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["ok", "rules"]
    authority = next(n for n, line in enumerate(lines) if line.split()[:2] == ["warn", "ca"])
    assert lines[authority + 1].strip().startswith("-> `turnout up`")
    assert lines[-1].startswith(f"{sum(line.split()[0] in STATES for line in lines)} findings: ")


def test_a_failure_is_status_1_in_json_too(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--rules", str(rules)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert {c["state"] for c in report["checks"]} <= STATES
    assert {c["check"] for c in report["checks"]} >= {
        *("rules", "ports", "ca", "ca trust", "python", "engine programs", "engines"),
        *("gpu", "gpu processes", "orphans", "ram", "swap", "disk for models"),
    }
    (rules / "routes.yaml").write_text("routes: 3\n")
    assert main(["doctor", "--json", "--rules", str(rules)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert [c["check"] for c in report["checks"] if c["state"] == "fail"] == ["rules"]


def test_ports_of_a_running_instance_are_known_and_those_of_a_dead_one_are_not(
    rules: Path,
) -> None:
    running = Running(
        pid=os.getpid(),
        proxy_port=1,
        base_url_port=2,
        ca_cert="ca.pem",
        sidecar_port=3,
        web_url="http://127.0.0.1:4/?token=x",
    )
    write_record(running)
    assert running_ports() == {1, 2, 3, 4}
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    write_record(Running(pid=ended.pid, proxy_port=1, base_url_port=2, ca_cert="ca.pem"))
    assert running_ports() == set()


def test_mitmproxy_is_not_imported_for_it(rules: Path) -> None:
    code = (
        "import sys; from turnout_cli.main import main; "
        f"main(['doctor', '--rules', {str(rules)!r}]); "
        "sys.exit(sorted(m for m in sys.modules if m.split('.')[0] in ('mitmproxy', 'aiohttp')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, text=True)
    assert done.stderr.strip() in ("", "[]"), done.stderr
