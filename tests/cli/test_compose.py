"""docker-compose.yml and its image: well-formed, pinned, closed, and made of commands that work.

Docker itself is not needed: the services' commands run here as plain processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest
import yaml

from proxy_kit import wait_until, write_rules
from turnout_rules.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
HOME = "/srv/turnout"
PINNED = r"^[a-z0-9/.-]+:v?\d+\.\d+\.\d+[a-z0-9.-]*$"
STRINGS = {"type": "array", "items": {"type": "string"}, "minItems": 1}

# The part of the compose specification that the file uses; anything else is a slip.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "services", "volumes"],
    "additionalProperties": False,
    "patternProperties": {"^x-": {}},
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z][a-z0-9_-]*$"},
        "services": {"type": "object", "additionalProperties": {"$ref": "#/$defs/service"}},
        "volumes": {"type": "object", "additionalProperties": {"type": "null"}},
        "secrets": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["environment"],
                "properties": {"environment": {"type": "string"}},
                "additionalProperties": False,
            },
        },
    },
    "$defs": {
        "service": {
            "type": "object",
            "required": ["image", "restart", "read_only", "cap_drop", "security_opt", "command"],
            "additionalProperties": False,
            "properties": {
                "image": {"type": "string", "pattern": PINNED},
                "build": {
                    "type": "object",
                    "required": ["context", "dockerfile"],
                    "additionalProperties": False,
                    "properties": {
                        "context": {"type": "string"},
                        "dockerfile": {"type": "string"},
                    },
                },
                "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
                "init": {"type": "boolean"},
                "read_only": {"const": True},
                "cap_drop": {"const": ["ALL"]},
                "security_opt": {"const": ["no-new-privileges:true"]},
                "command": STRINGS,
                "ports": {
                    "type": "array",
                    "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"},
                },
                "extra_hosts": STRINGS,
                "network_mode": {"type": "string", "pattern": "^service:"},
                "depends_on": STRINGS,
                "environment": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "string",
                        "pattern": r"^\$\{[A-Z_]+:[?-][^}]*\}$",
                    },
                },
                "volumes": {
                    "type": "array",
                    "items": {"type": "string", "pattern": r"^(\./)?[^:]+:/[^:]+(:ro)?$"},
                },
                "tmpfs": STRINGS,
                "secrets": STRINGS,
                "stop_grace_period": {"type": "string", "pattern": r"^\d+s$"},
                "healthcheck": {
                    "type": "object",
                    "required": ["test"],
                    "additionalProperties": False,
                    "properties": {
                        "test": {"type": "array", "prefixItems": [{"const": "CMD"}]},
                        **{
                            key: {"type": "string", "pattern": r"^\d+s$"}
                            for key in ("interval", "timeout", "start_period", "start_interval")
                        },
                    },
                },
            },
        }
    },
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return content


def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def test_it_fits_the_specification_and_every_image_is_pinned(compose: dict[str, Any]) -> None:
    jsonschema.validate(compose, SCHEMA)
    assert set(services(compose)) == {"net", "proxy", "sidecar", "prometheus"}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in ("net", "proxy", "sidecar"):
        assert services(compose)[name]["image"] == f"turnout:{version}"
        assert services(compose)[name]["build"]["dockerfile"] == "deploy/Dockerfile"
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert bases
    assert all(re.match(PINNED, image) for image in bases)


def test_every_mount_exists_and_every_named_volume_is_declared(compose: dict[str, Any]) -> None:
    used = set()
    for service in services(compose).values():
        for mount in service.get("volumes", ()):
            source, _, rest = mount.partition(":")
            if source.startswith("."):
                assert (ROOT / source).exists(), mount
                assert rest.endswith(":ro"), mount
            else:
                used.add(source)
        build = service.get("build")
        assert build is None or (ROOT / build["context"] / build["dockerfile"]).is_file()
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        assert set(service.get("depends_on", ())) <= set(services(compose))
    assert used == set(compose["volumes"])


def test_what_is_writable_belongs_to_the_user_of_the_image(compose: dict[str, Any]) -> None:
    """A named volume takes the owner of the folder that lies at its place in the image."""
    made = re.search(r"install -d -o turnout -g turnout -m 0700 \\\n(.*)", DOCKERFILE)
    assert made is not None
    folders = set(made.group(1).split())
    own = [services(compose)[name] for name in ("proxy", "sidecar")]
    mounts = [m.split(":")[1:] for s in own for m in s["volumes"]]
    assert {mount[0] for mount in mounts if mount[-1] != "ro"} <= folders
    assert "useradd --uid 10001" in DOCKERFILE
    assert DOCKERFILE.rstrip().splitlines()[-2] == "USER turnout"
    assert f"{HOME}/cache/heads:uid=10001,gid=10001,mode=0700" in own[1]["tmpfs"]
    assert f"{HOME}/cache/heads" in folders


def test_published_ports_are_those_of_the_settings(compose: dict[str, Any]) -> None:
    published = [port.split(":")[1:] for port in services(compose)["net"]["ports"]]
    assert all(outside == inside for outside, inside in published)
    settings = Settings()
    ours = {str(settings.proxy.port), str(settings.sidecar.port)}
    assert {inside for _, inside in published} == {*ours, "9090"}
    assert not any("ports" in s for n, s in services(compose).items() if n != "net")
    starter = yaml.safe_load((ROOT / "rules" / "turnout.yaml").read_text())
    assert starter["proxy"]["port"] == settings.proxy.port
    assert starter["sidecar"]["port"] == settings.sidecar.port
    arguments = services(compose)["proxy"]["command"]
    assert f"--gateway=http://127.0.0.1:{settings.sidecar.port}" in arguments


def test_prometheus_scrapes_what_the_planes_open_with_the_sidecars_token(
    compose: dict[str, Any],
) -> None:
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in scraped}
    arguments = services(compose)["proxy"]["command"]
    port = next(a for a in arguments if a.startswith("--metrics-port=")).partition("=")[2]
    assert targets["turnout-proxy"] == [f"127.0.0.1:{port}"]
    assert targets["turnout-sidecar"] == [f"127.0.0.1:{Settings().sidecar.port}"]
    (secret,) = services(compose)["prometheus"]["secrets"]
    file = next(j["authorization"]["credentials_file"] for j in scraped if "authorization" in j)
    assert file == f"/run/secrets/{secret}"
    assert compose["secrets"][secret] == {"environment": "TURNOUT_SIDECAR_TOKEN"}


def test_the_image_copies_what_exists_and_leaves_out_the_rest() -> None:
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for name in line.split()
    ]
    assert all((ROOT / name).exists() for name in copied)
    ignore = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert sorted(line[1:] for line in ignore if line.startswith("!")) == sorted(copied)
    wheels = (ROOT / "pyproject.toml").read_text()
    packed = re.findall(r'"(rules|addon|sidecar|cli)/turnout_', wheels)
    assert {"rules", "addon", "sidecar", "cli"} == set(packed) <= set(copied)


def localised(command: list[str], tmp_path: Path, rules: Path) -> list[str]:
    """A service's command with its container's folders here, on this interpreter."""
    places = {f"{HOME}/rules": str(rules), f"{HOME}/run": str(tmp_path / "run")}
    words = [sys.executable if word == "python" else word for word in command]
    for place, here in places.items():
        words = [word.replace(place, here) for word in words]
    assert not any(HOME in word for word in words)
    return words


@contextlib.contextmanager
def started(command: list[str], environ: dict[str, str], log: Path) -> Iterator[dict[str, Any]]:
    ready = log.with_suffix(".json")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready)],
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, 60, "ready")
        assert ready.exists(), log.read_text()
        yield json.loads(ready.read_text())
    finally:
        process.terminate()
        process.wait(20)


ROUTES = """
routes:
  - {name: held, match: [forbidden], target: block, message: Held back., priority: 1}
  - {name: rest, match: [.*], target: gone/model, fallback: [gone/other]}
"""
UPSTREAMS = 'upstreams: {gone: {base_url: "http://127.0.0.1:1/v1"}}\n'


def test_the_services_commands_work_together(compose: dict[str, Any], tmp_path: Path) -> None:
    settings = "classifier: {kind: 'off'}\nproxy: {intercept: [llm.example]}\n"
    rules = write_rules(tmp_path / "rules", routes=ROUTES, upstreams=UPSTREAMS, turnout=settings)
    secrets = {"TURNOUT_PROXY_AUTH": "me:secret", "TURNOUT_SIDECAR_TOKEN": "the-token"}
    assert secrets.keys() <= services(compose)["proxy"]["environment"].keys()
    folders = {f"TURNOUT_{n.upper()}_DIR": str(tmp_path / n) for n in ("cache", "data")}
    environ = os.environ | folders | secrets | {"TURNOUT_RUNTIME_DIR": str(tmp_path / "run")}
    sidecar = localised(services(compose)["sidecar"]["command"], tmp_path, rules)
    with started([*sidecar, "--port=0"], environ, tmp_path / "sidecar.log") as side:
        gateway = f"http://127.0.0.1:{side['port']}"
        proxy = localised(services(compose)["proxy"]["command"], tmp_path, rules)
        free = ("--port=0", "--base-url-port=0", "--metrics-port=0", f"--gateway={gateway}")
        with started([*proxy, *free], environ, tmp_path / "proxy.log") as front:
            ask_both(front, gateway)
        check_health(compose, gateway, environ)


def ask_both(front: dict[str, Any], gateway: str) -> None:
    """What a tool outside sees of the proxy and the gateway, and what Prometheus reads."""
    address = f"127.0.0.1:{front['proxy_port']}"
    url = "http://llm.example/v1/chat/completions"

    def say(text: str, user: str = "me:secret@") -> httpx2.Response:
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        with httpx2.Client(proxy=f"http://{user}{address}", trust_env=False, timeout=20) as client:
            return client.post(url, json=body)

    assert say("forbidden", user="").status_code == 407
    assert say("forbidden").json()["error"]["message"] == "Held back."
    through = say("anything")
    assert through.headers["x-turnout-attempts"] == "gone/model=connect, gone/other=connect"
    assert httpx2.get(f"{gateway}/v1/models", trust_env=False).status_code == 401
    bearer = {"authorization": "Bearer the-token"}
    for url in (f"{gateway}/v1/models", f"{gateway}/metrics"):
        assert httpx2.get(url, headers=bearer, trust_env=False).status_code == 200
    metrics = f"http://127.0.0.1:{front['metrics_port']}/metrics"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    assert b"turnout_requests_total" in opener.open(metrics, timeout=10).read()


def check_health(compose: dict[str, Any], gateway: str, environ: dict[str, str]) -> None:
    """The sidecar's health check says yes to this one, and no to a port where nobody is."""
    test = services(compose)["sidecar"]["healthcheck"]["test"][1:]
    assert test[-1] == f"--url=http://127.0.0.1:{Settings().sidecar.port}"
    program = str(Path(sys.executable).parent / test[0])
    for url, status in ((gateway, 0), ("http://127.0.0.1:1", 1)):
        command = [program, *test[1:-1], f"--url={url}"]
        done = subprocess.run(command, env=environ, capture_output=True, timeout=30)
        assert done.returncode == status, done
