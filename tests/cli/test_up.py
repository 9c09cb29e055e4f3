"""`turnout up`: both planes for as long as it lives, and nothing of them afterwards."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from proxy_kit import Upstream, upstream, wait_until, write_rules
from turnout_cli import launching
from turnout_cli.main import main
from up_kit import ask, has_ended, up

ROUTES = "routes:\n  - {name: rest, match: [.*], target: far/model}\n"
SETTINGS = "classifier: {kind: 'off'}\nproxy: {intercept: [llm.example]}\n"


@pytest.fixture
def far() -> Iterator[Upstream]:
    with upstream() as server:
        yield server


@pytest.fixture
def rules(tmp_path: Path, far: Upstream) -> Path:
    upstreams = f'upstreams: {{far: {{base_url: "{far.url}/v1"}}}}\n'
    return write_rules(tmp_path / "rules", routes=ROUTES, upstreams=upstreams, turnout=SETTINGS)


@pytest.mark.parametrize("value", ["99999", "-1", "http", "9" * 5_000])
@pytest.mark.parametrize("name", ["--port", "--sidecar-port", "--metrics-port"])
def test_a_port_that_is_none_is_named(
    name: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", f"{name}={value}"])
    assert ended.value.code == 2
    assert f"argument {name}: '{value}' is no port" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_says_where_everything_is_and_leaves_nothing(
    tmp_path: Path, rules: Path, number: int
) -> None:
    with up(tmp_path / "up", rules, "--metrics-port", "0") as running:
        record = running.record
        for port in ("proxy_port", "base_url_port", "sidecar_port", "metrics_port"):
            assert f"127.0.0.1:{record[port]}" in running.log
        assert "turnout run" in running.log
        assert ask(running).json()["choices"][0]["message"]["content"] == "ok from model"
        children = running.children()
        assert len(children) >= 2
        running.process.send_signal(number)
        assert running.process.wait(30) == 0
        assert all(has_ended(child) for child in children)
        assert not (tmp_path / "up" / "run" / "turnout.json").exists()
        assert running.leftovers() == []


def test_what_it_says_can_be_used_as_it_is_printed(
    tmp_path: Path, rules: Path, far: Upstream
) -> None:
    settings = SETTINGS.replace("proxy: {", f"proxy: {{origin: '{far.url}', ")
    write_rules(rules, turnout=settings)
    with up(tmp_path / "up with a space", rules) as running:
        printed = running.log[running.log.index("export ") : running.log.index("(`turnout run")]
        command = f"{printed}\nenv -0"
        shell = subprocess.run(["sh", "-c", command], capture_output=True, check=True, env={})
        environ = dict(line.split("=", 1) for line in shell.stdout.decode().split("\0") if line)
        assert environ["HTTPS_PROXY"].endswith(f":{running.record['proxy_port']}")
        bundle = Path(environ["SSL_CERT_FILE"]).read_text()
        assert Path(running.record["ca_cert"]).read_text() in bundle
        assert bundle.count("BEGIN CERTIFICATE") > 50, "the public roots, too"
        assert f"base-URL listener (to {far.url} and https://api.anthropic.com" in running.log
        assert "reverse proxy to" not in running.log


def test_killed_outright_its_planes_end_with_it(tmp_path: Path, rules: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux tells children of their parent's death")
    with up(tmp_path / "up", rules) as running:
        children = running.children()
        running.process.kill()
        running.process.wait(10)
        wait_until(lambda: all(has_ended(child) for child in children), 20, "planes end")


def test_a_stop_while_it_starts_leaves_nothing_either(tmp_path: Path, rules: Path) -> None:
    with up(tmp_path / "up", rules, waits=False) as running:
        wait_until(running.children, 30, "the first plane starts")
        children = running.children()
        running.process.terminate()
        assert running.process.wait(30) == 0
        assert all(has_ended(child) for child in children)
        assert running.leftovers() == []


def test_a_dead_sidecar_is_started_again_on_its_port_and_requests_go_on(
    tmp_path: Path, rules: Path
) -> None:
    with up(tmp_path / "up", rules) as running:
        first = running.plane("turnout_sidecar")
        first.kill()
        assert ask(running).status_code == 200
        health = f"http://127.0.0.1:{running.record['sidecar_port']}/healthz"

        def is_back() -> bool:
            with contextlib.suppress(httpx2.HTTPError):
                return httpx2.get(health, trust_env=False).status_code == 200
            return False

        wait_until(is_back, 30, "a new sidecar answers")
        assert running.plane("turnout_sidecar").pid != first.pid
        assert "sidecar ended with status -9; restarting it" in running.log


def test_a_dead_proxy_is_started_again_on_its_ports_and_requests_go_on(
    tmp_path: Path, rules: Path
) -> None:
    with up(tmp_path / "up", rules, "--metrics-port", "0") as running:
        first = running.plane("turnout_addon")
        first.kill()

        def is_back() -> bool:
            with contextlib.suppress(httpx2.HTTPError):
                return ask(running).status_code == 200
            return False

        wait_until(is_back, 30, "a new proxy answers")
        assert running.plane("turnout_addon").pid != first.pid
        assert "proxy ended with status -9; restarting it" in running.log
        metrics = f"http://127.0.0.1:{running.record['metrics_port']}/metrics"
        assert httpx2.get(metrics, trust_env=False).status_code == 200


STILL_FOR_S = launching.LOOK_S * (launching.LOOKS_UNTIL_HUNG + 25)
"""A loaded machine's looks take longer."""


def test_a_frozen_sidecar_costs_no_request_its_deadline_and_is_replaced(
    tmp_path: Path, far: Upstream
) -> None:
    routes = """
routes:
  - {name: local, match: [locally], target: mine/m}
  - {name: careful, match: [carefully], target: far/model, fallback: [far/other]}
  - {name: taught, examples: [will it rain], target: far/rain}
  - {name: rest, match: [.*], target: far/model}
"""
    upstreams = f"""
upstreams:
  far: {{base_url: "{far.url}/v1"}}
  mine: {{engine: command, models: {{m: {{command: [sleep, "{{port}}"]}}}}}}
"""
    settings = (
        "proxy: {intercept: [llm.example]}\nclassifier: {kind: systemone, url: 'http://[::1]:9'}"
    )
    rules = write_rules(tmp_path / "rules", routes=routes, upstreams=upstreams, turnout=settings)
    with up(tmp_path / "up", rules) as running:
        first = running.plane("turnout_sidecar")
        first.suspend()
        for text, status in (("undecided", 200), ("carefully", 200), ("locally", 503)):
            began = time.monotonic()
            answer = ask(running, text)
            assert time.monotonic() - began < 3, text
            assert answer.status_code == status
        assert answer.json()["error"]["code"] == "sidecar_unavailable"
        assert answer.headers["retry-after"]
        health = f"http://127.0.0.1:{running.record['sidecar_port']}/healthz"

        def is_back() -> bool:
            with contextlib.suppress(httpx2.HTTPError):
                return httpx2.get(health, trust_env=False, timeout=1).status_code == 200
            return False

        wait_until(is_back, STILL_FOR_S, "a new sidecar answers")
        assert has_ended(first)
        assert "sidecar has stood still" in running.log


def test_a_frozen_proxy_is_replaced_and_requests_go_on(tmp_path: Path, rules: Path) -> None:
    with up(tmp_path / "up", rules) as running:
        first = running.plane("turnout_addon")
        first.suspend()
        wait_until(lambda: has_ended(first), STILL_FOR_S, "it is killed")

        def is_back() -> bool:
            with contextlib.suppress(httpx2.HTTPError):
                return ask(running).status_code == 200
            return False

        wait_until(is_back, 30, "a new proxy answers")
        assert "proxy has stood still" in running.log
        assert running.plane("turnout_addon").pid != first.pid


def test_a_freeze_of_all_of_it_ends_nothing(tmp_path: Path, rules: Path) -> None:
    """As when a machine is suspended: nobody may take another's standstill for its death."""
    with up(tmp_path / "up", rules) as running:
        planes = [running.plane("turnout_sidecar"), running.plane("turnout_addon")]
        everybody = [psutil.Process(running.process.pid), *running.children()]
        for process in everybody:
            process.suspend()
        time.sleep(launching.LOOK_S * (launching.LOOKS_UNTIL_HUNG + 2))
        for process in everybody:
            process.resume()
        assert ask(running).status_code == 200
        assert all(plane.is_running() for plane in planes)
        assert "stood still" not in running.log


def test_when_the_proxy_is_asked_to_end_all_ends(tmp_path: Path, rules: Path) -> None:
    with up(tmp_path / "up", rules) as running:
        children = running.children()
        running.plane("turnout_addon").terminate()
        assert running.process.wait(30) == 0
        assert "the proxy has ended" in running.log
        assert all(has_ended(child) for child in children)


def test_a_second_instance_is_refused_or_leaves_the_first_ones_record(
    tmp_path: Path, rules: Path
) -> None:
    with up(tmp_path / "up", rules) as first:
        record = first.record
        command = [sys.executable, "-m", "turnout_cli", "up", "--lean", "--rules", str(rules)]
        refused = subprocess.run(command, env=first.environ, capture_output=True, timeout=60)
        assert refused.returncode == 1
        assert f"already running as process {record['pid']}".encode() in refused.stderr
        with up(tmp_path / "up", rules) as second:
            assert second.process.pid != record["pid"]
            assert first.record == record
        assert first.record == record
        assert ask(first).status_code == 200


def test_rules_that_cannot_be_used_end_it_with_their_place(tmp_path: Path, rules: Path) -> None:
    write_rules(rules, routes="routes:\n  - {name: a, target: no/where}\n")
    with up(tmp_path / "up", rules, waits=False) as running:
        assert running.process.wait(30) == 1
        assert "routes.yaml:2" in running.log


def test_a_port_that_is_taken_ends_it_and_says_so(
    tmp_path: Path, rules: Path, far: Upstream
) -> None:
    with up(tmp_path / "up", rules, f"--sidecar-port={far.port}", waits=False) as running:
        assert running.process.wait(60) == 1
        assert f"port {far.port} on 127.0.0.1 cannot be used" in running.log
        assert "sidecar ended with status 1" in running.log
        assert running.leftovers() == []
    with up(tmp_path / "up2", rules, f"--port={far.port}", waits=False) as running:
        assert running.process.wait(60) != 0
        assert str(far.port) in running.log
        assert running.leftovers() == []
