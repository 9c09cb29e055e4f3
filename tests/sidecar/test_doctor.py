"""The doctor: each check says what is there, and for what is wrong, what to do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from model_folders import LLAMA3_8B, gguf, model_folder
from proxy_kit import make_certificates, write_rules
from turnout_sidecar import doctor, doctor_machine, doctor_setup
from turnout_sidecar.doctor import examine
from turnout_sidecar.finding import GIB, Finding
from turnout_sidecar.machine import Gpu, GpuProcess, Machine, MachineProbe
from turnout_sidecar.model_store import MODELS
from turnout_sidecar.orphans import Record, Records, boot_id
from turnout_sidecar.process import MARKER

ROUTES = "routes:\n  - {name: rest, match: [.*], target: TARGET}\n"
PORTS = "proxy: {port: 0, base_url_port: 0, web_port: 0}\nsidecar: {port: 0}\n"
CALM = Machine(
    ram_total_bytes=16 * GIB,
    ram_available_bytes=12 * GIB,
    swap_total_bytes=4 * GIB,
    swap_used_bytes=0,
)


class Probe(MachineProbe):
    """A machine as told."""

    def __init__(self, machine: Machine = CALM) -> None:
        super().__init__()
        self.machine = machine

    def look(self) -> Machine:
        return self.machine


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Folders of the test's own, and nothing that the machine's owner has set."""
    own = {
        "PATH": str(tmp_path / "bin"),
        "TURNOUT_DATA_DIR": str(tmp_path / "data"),
        "TURNOUT_CACHE_DIR": str(tmp_path / "cache"),
        "TURNOUT_RUNTIME_DIR": str(tmp_path / "run"),
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(doctor, "SWAP_LOOK_S", 0.0)
    (tmp_path / "bin").mkdir()
    return own


@pytest.fixture
def look(tmp_path: Path, environ: dict[str, str]) -> Callable[..., list[Finding]]:
    """Examine a rules folder of one route to `target`."""

    def examined(
        target: str = "pass",
        upstreams: str = "",
        machine: Machine = CALM,
        settings: str = PORTS + "classifier: {kind: 'off'}\n",
        **more: object,
    ) -> list[Finding]:
        files = {"routes": ROUTES.replace("TARGET", target), "turnout": settings}
        if upstreams:
            files["upstreams"] = upstreams
        rules = write_rules(tmp_path / "rules", **files)
        return examine(rules, environ, probe=Probe(machine), **more)  # type: ignore[arg-type]

    return examined


Look = Callable[..., list[Finding]]


def of(findings: list[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


def the(findings: list[Finding], check: str) -> Finding:
    (only,) = of(findings, check)
    return only


def test_a_calm_machine_with_routing_only_has_no_failure(look: Look) -> None:
    findings = look()
    assert {f.check for f in findings if f.state != "ok"} == {"ca"}
    assert "turnout up" in the(findings, "ca").remedy
    assert all(f.remedy for f in findings if f.state != "ok")


def test_broken_rules_fail_with_place_and_the_rest_is_still_looked_at(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    rules = write_rules(tmp_path / "r", routes="routes:\n  - {name: a, target: no/where}\n")
    findings = examine(rules, environ, probe=Probe())
    broken = the(findings, "rules")
    assert broken.state == "fail"
    assert "routes.yaml:2" in broken.message
    assert "turnout check" in broken.remedy
    assert of(findings, "ram")


def test_probes_that_are_not_met_fail(tmp_path: Path, environ: dict[str, str]) -> None:
    routes = ROUTES.replace("TARGET", "pass") + "  - {name: a, match: [x], target: pass}\n"
    probes = "probes:\n  - {text: nothing of it, route: a}\n"
    rules = write_rules(tmp_path / "r", routes=routes, probes=probes)
    finding = the(examine(rules, environ, probe=Probe()), "rules")
    assert (finding.state, "turnout test" in finding.remedy) == ("fail", True)


def test_a_missing_folder_says_how_to_begin(tmp_path: Path, environ: dict[str, str]) -> None:
    finding = the(examine(tmp_path / "none", environ, probe=Probe()), "rules")
    assert finding.state == "fail"
    assert "turnout init" in finding.message


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_fails_with_its_holder_and_our_own_do_not(look: Look, taken: int) -> None:
    settings = PORTS.replace("{port: 0}", f"{{port: {taken}}}")
    bad = next(f for f in of(look(settings=settings), "ports") if f.state == "fail")
    assert f"127.0.0.1:{taken} is taken by process {os.getpid()}" in bad.message
    assert "sidecar.port" in bad.remedy
    ours = of(look(settings=settings, own_ports=[taken]), "ports")
    assert all(f.state == "ok" for f in ours)
    assert any(str(taken) in f.message for f in ours)


def test_one_port_for_two_listeners_fails(look: Look) -> None:
    settings = "proxy: {port: 1234, base_url_port: 1234, web_port: 0}\nsidecar: {port: 0}\n"
    bad = [f for f in of(look(settings=settings), "ports") if f.state == "fail"]
    assert ["both 1234" in f.message for f in bad] == [True]


def make_authority(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "proxy"
    folder.mkdir(parents=True)
    ca, server = make_certificates(tmp_path, ("localhost",))
    (folder / doctor_setup.CA_CERT).write_bytes(ca.read_bytes())
    key = folder / doctor_setup.CA_KEY
    key.write_bytes(server.read_bytes())
    key.chmod(0o600)
    return folder


def test_the_authority_is_made_valid_and_private(look: Look, tmp_path: Path) -> None:
    folder = make_authority(tmp_path)
    assert the(look(), "ca").state == "ok"
    key = folder / doctor_setup.CA_KEY
    key.chmod(0o644)
    leaky = the(look(), "ca")
    assert (leaky.state, leaky.remedy) == ("fail", f"chmod 600 {key}")
    key.chmod(0o600)
    (folder / doctor_setup.CA_CERT).write_text("no certificate")
    assert the(look(), "ca").state == "fail"


def test_trust_is_looked_for_where_tools_look(
    look: Look, tmp_path: Path, environ: dict[str, str]
) -> None:
    folder = make_authority(tmp_path)
    assert the(look(), "ca trust").state == "ok"
    environ["HTTPS_PROXY"] = "http://127.0.0.1:4321"
    asked = {"own_ports": [4321], "trust_variables": ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")}
    untold = the(look(**asked), "ca trust")
    assert (untold.state, "turnout run" in untold.remedy) == ("warn", True)
    other = tmp_path / "other.pem"
    other.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    environ["NODE_EXTRA_CA_CERTS"] = str(folder / doctor_setup.CA_CERT)
    environ["SSL_CERT_FILE"] = str(other)
    wrong = the(look(**asked), "ca trust")
    assert wrong.state == "warn"
    assert "SSL_CERT_FILE lack" in wrong.message
    with other.open("ab") as file:
        file.write((folder / doctor_setup.CA_CERT).read_bytes())
    assert the(look(**asked), "ca trust").state == "ok"


def test_a_company_proxy_that_the_settings_do_not_know_is_a_warning(
    look: Look, environ: dict[str, str]
) -> None:
    environ["HTTPS_PROXY"] = "http://me:secret@proxy.example:3128"
    finding = the(look(), "company proxy")
    assert finding.state == "warn"
    assert "http://proxy.example:3128" in finding.remedy
    assert "secret" not in str(finding)
    known = PORTS.replace("proxy: {", "proxy: {upstream_proxy: 'http://proxy.example:3128', ")
    assert of(look(settings=known), "company proxy") == []


def test_a_key_that_is_not_there_fails_only_where_a_route_needs_it(
    look: Look, environ: dict[str, str]
) -> None:
    upstreams = (
        "upstreams:\n  far: {base_url: 'https://far.example/v1', api_key_env: FAR_KEY}\n"
        "  other: {base_url: 'https://other.example/v1', api_key_env: OTHER_KEY}\n"
    )
    missing = the(look("far/big", upstreams), "keys")
    assert missing.state == "fail"
    assert "FAR_KEY" in missing.message + missing.remedy
    environ["FAR_KEY"] = "sk-not-to-be-shown"
    there = look("far/big", upstreams)
    assert the(there, "keys").state == "ok"
    assert "sk-not-to-be-shown" not in str(there)


def test_a_key_file_that_others_read_is_a_warning(look: Look, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-1")
    file.chmod(0o644)
    upstreams = f"upstreams:\n  far: {{base_url: 'https://far.example/v1', api_key_file: {file}}}\n"
    states = {f.state: f.remedy for f in of(look("far/big", upstreams), "keys")}
    assert states == {"warn": f"chmod 600 {file}", "ok": ""}


LLAMA = "upstreams:\n  local: {engine: llamacpp, models: {tiny: {model_path: smollm2}}}\n"


def store_model(tmp_path: Path, name: str) -> None:
    """A file of the right size, with nothing of its content but the beginning."""
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MODELS[name].file_name
    if path.suffix == ".gguf":
        gguf(path, {"general.architecture": "llama"}, tensors=1)
    with path.open("ab") as file:
        file.truncate(MODELS[name].size)


def program(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "bin" / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_model_that_was_not_fetched_fails_where_it_is_used(look: Look, tmp_path: Path) -> None:
    program(tmp_path, "llama-server")
    missing = the(look("local/tiny", LLAMA), "engines")
    assert missing.state == "fail"
    assert "turnout models pull" in missing.remedy
    assert the(look("pass", LLAMA), "engines").state == "warn"
    store_model(tmp_path, "smollm2")
    assert the(look("local/tiny", LLAMA), "engines").message == "can start: local/tiny"


def test_engine_programs_are_looked_for(look: Look, tmp_path: Path) -> None:
    model_folder(tmp_path / "m", LLAMA3_8B, 4096)
    vllm = f"upstreams:\n  v: {{engine: vllm, models: {{m: {{model_path: {tmp_path / 'm'}}}}}}}\n"
    missing = the(look("v/m", vllm), "engines")
    assert missing.state == "fail"
    assert "python:" in missing.remedy
    program(tmp_path, "vllm")
    assert the(look("v/m", vllm), "engines").state == "ok"
    assert str(tmp_path / "bin" / "vllm") in the(look("v/m", vllm), "engine programs").message
    command = "upstreams:\n  c: {engine: command, models: {m: {command: [my-server, '{port}']}}}\n"
    assert "my-server" in the(look("c/m", command), "engines").message
    program(tmp_path, "my-server")
    assert the(look("c/m", command), "engines").state == "ok"


def test_a_model_folder_that_is_not_there_fails(look: Look, tmp_path: Path) -> None:
    program(tmp_path, "vllm")
    vllm = "upstreams:\n  v: {engine: vllm, models: {m: {model_path: ./no/such/model}}}\n"
    assert "no/such/model" in the(look("v/m", vllm), "engines").message
    hub = "upstreams:\n  v: {engine: vllm, models: {m: {model_path: Qwen/Qwen3-4B}}}\n"
    assert the(look("v/m", hub), "engines").state == "ok"


def test_the_classifier_needs_its_encoder(look: Look, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxruntime_extensions")
    missing = the(look(settings=PORTS), "classifier")
    assert (missing.state, missing.remedy) == ("warn", "turnout models pull")
    store_model(tmp_path, "sentence-encoder")
    assert the(look(settings=PORTS), "classifier").state == "ok"


CARD = Gpu(index=0, name="Card", total_bytes=24 * GIB, free_bytes=20 * GIB, drives_display=True)


def with_card(*processes: GpuProcess, free_gib: float = 20) -> Machine:
    card = replace(CARD, processes=processes, free_bytes=int(free_gib * GIB))
    return replace(CALM, gpus=(card,))


def test_cards_are_described_and_their_absence_explained(look: Look) -> None:
    message = the(look(machine=with_card()), "gpu").message
    assert message == "gpu0 Card: 20.0 GiB of 24.0 GiB free, drives a screen"
    none = the(look(machine=replace(CALM, gpu_error="no driver")), "gpu")
    assert (none.state, "no driver" in none.message) == ("ok", True)


def test_an_engine_that_wants_more_of_the_card_than_is_free_fails(
    look: Look, tmp_path: Path
) -> None:
    program(tmp_path, "vllm")
    vllm = "upstreams:\n  v: {engine: vllm, models: {m: {model_path: a/b}}}\n"
    finding = the(look("v/m", vllm, with_card(free_gib=10)), "gpu memory")
    assert finding.state == "fail"
    assert "14.4 GiB" in finding.message
    assert "gpu_memory_utilization: 0.41" in finding.remedy
    assert of(look("v/m", vllm, with_card(free_gib=15)), "gpu memory") == []
    assert the(look("v/m", vllm), "gpu").state == "warn"


def test_left_over_processes_are_reported_and_live_on(look: Look) -> None:
    left = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        holding = GpuProcess(pid=left.pid, used_bytes=17 * GIB, name="VLLM::EngineCore")
        screen = GpuProcess(pid=1, used_bytes=90 * 2**20, name="Xorg")
        hidden = GpuProcess(pid=left.pid, used_bytes=None, name="ollama")
        finding = the(look(machine=with_card(holding, screen, hidden)), "gpu processes")
        assert finding.state == "warn"
        assert f"process {left.pid} (VLLM::EngineCore) holds 17.0 GiB of gpu0" in finding.message
        assert "Xorg" not in finding.message
        assert f"kill {left.pid} (" in finding.remedy
        assert left.poll() is None
    finally:
        left.kill()
        left.wait()


def marked_process(marker: str) -> subprocess.Popen[bytes]:
    code = "print('up', flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env=os.environ | {MARKER: marker},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    return child


def test_engines_of_a_living_sidecar_are_neither_orphans_nor_left_over(
    look: Look, tmp_path: Path
) -> None:
    engine = marked_process("sidecar#1")
    try:
        Records(tmp_path / "run" / "engines").write("local/tiny", "sidecar#1", engine.pid)
        mine = GpuProcess(pid=engine.pid, used_bytes=9 * GIB, name="python")
        findings = look(machine=with_card(mine))
        assert the(findings, "gpu processes").state == "ok"
        assert the(findings, "orphans").state == "ok"
    finally:
        engine.kill()
        engine.wait()


def test_engines_of_a_dead_sidecar_are_orphans_and_live_on(look: Look, tmp_path: Path) -> None:
    import msgspec

    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    engine = marked_process("sidecar#2")
    try:
        record = Record(
            backend="local/tiny",
            marker="sidecar#2",
            pid=engine.pid,
            started_at=psutil.Process(engine.pid).create_time(),
            boot_id=boot_id(),
            owner_pid=gone.pid,
            owner_started_at=1.0,
        )
        folder = tmp_path / "run" / "engines"
        folder.mkdir(parents=True)
        (folder / "2.json").write_bytes(msgspec.json.encode(record))
        finding = the(look(), "orphans")
        assert finding.state == "warn"
        assert f"local/tiny (process {engine.pid})" in finding.message
        assert engine.poll() is None
    finally:
        engine.kill()
        engine.wait()
    assert the(look(), "orphans").state == "ok"


@pytest.mark.parametrize(
    ("check", "machine"),
    [
        ("ram", replace(CALM, ram_available_bytes=GIB)),
        ("ram", replace(CALM, ram_total_bytes=2 * GIB, ram_available_bytes=GIB)),
        ("swap", replace(CALM, swap_used_bytes=3 * GIB)),
        ("swap", replace(CALM, swap_in_mb_s=80.0)),
    ],
)
def test_short_memory_and_swap_are_warnings(look: Look, check: str, machine: Machine) -> None:
    finding = the(look(machine=machine), check)
    assert (finding.state, bool(finding.remedy)) == ("warn", True)


def test_a_disk_without_room_for_the_models_to_fetch_fails(
    look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "llama-server")

    class Usage:
        free = 3 * GIB // 2

    monkeypatch.setattr(doctor_machine.shutil, "disk_usage", lambda path: Usage)
    assert the(look("local/tiny", LLAMA), "disk for models").state == "warn"
    monkeypatch.setattr(Usage, "free", MODELS["smollm2"].size)
    assert the(look("local/tiny", LLAMA), "disk for models").state == "fail"
