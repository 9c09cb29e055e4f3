"""The doctor's looks at the set-up: ports, certificate authority, models, engines, keys.

Opens a port for a moment to see whether it is free; writes nothing and asks no network.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import shutil
import socket
import ssl
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from turnout_rules.credentials import Keyring, MissingKey
from turnout_rules.model import Target
from turnout_sidecar import model_store
from turnout_sidecar.finding import Finding, Scene
from turnout_sidecar.startable import obstacle, remarks

CA_CERT = "mitmproxy-ca-cert.pem"
CA_KEY = "mitmproxy-ca.pem"
_SYSTEM_STORES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def look_at_setup(scene: Scene) -> Iterator[Finding]:
    """Every finding about the set-up."""
    yield from _ports(scene)
    yield _authority(scene)
    yield _trust(scene)
    yield from _company_proxy(scene)
    yield from _encoder(scene)
    yield _programs(scene)
    yield from _engines(scene)
    yield from _keys(scene)


def _ports(scene: Scene) -> Iterator[Finding]:
    proxy, sidecar = scene.settings.proxy, scene.settings.sidecar
    listeners = (
        ("proxy.port", proxy.listen_host, proxy.port),
        ("proxy.base_url_port", "127.0.0.1", proxy.base_url_port),
        ("proxy.web_port", "127.0.0.1", proxy.web_port),
        ("sidecar.port", sidecar.listen_host, sidecar.port),
    )
    free, ours = [], []
    seen: dict[int, str] = {}
    for setting, host, port in listeners:
        if port and port in seen:
            message = f"{setting} and {seen[port]} are both {port}"
            yield Finding(check="ports", state="fail", message=message, remedy="change one")
            continue
        seen[port] = setting
        if port in scene.own_ports:
            ours.append(str(port))
        elif obstacle := _port_obstacle(host, port):
            message = f"{setting}: {host}:{port} {obstacle}"
            remedy = f"end that program, or set another {setting} in turnout.yaml"
            yield Finding(check="ports", state="fail", message=message, remedy=remedy)
        else:
            free.append(str(port) if port else "any")
    if free:
        yield Finding(check="ports", state="ok", message=f"free: {', '.join(free)}")
    if ours:
        message = f"used by the Turnout that runs: {', '.join(ours)}"
        yield Finding(check="ports", state="ok", message=message)


def _port_obstacle(host: str, port: int) -> str:
    """Why nothing can listen there now; empty: it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            # Binding alone succeeds beside a listener that was opened with SO_REUSEADDR, too.
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"is taken{_holder(port)}"
        return f"cannot be used: {error.strerror or error}"
    return ""


def _holder(port: int) -> str:
    """` by process 12 (name)`, where this user may know it."""
    try:
        for connection in psutil.net_connections("tcp"):
            is_it = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if is_it and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f" by process {connection.pid} ({name})"
    except (psutil.Error, OSError):
        return ""
    return ""


def _authority(scene: Scene) -> Finding:
    """The proxy's certificate authority: there, still valid, and its key for nobody else."""
    certificate, key = scene.proxy_dir / CA_CERT, scene.proxy_dir / CA_KEY
    if not certificate.is_file() or not key.is_file():
        message = f"not made yet ({certificate})"
        remedy = "`turnout up` or `turnout run` makes it at its first start"
        return Finding(check="ca", state="warn", message=message, remedy=remedy)
    if stat.S_IMODE(key.stat().st_mode) & 0o077:
        message = f"others can read the authority's private key {key}"
        return Finding(check="ca", state="fail", message=message, remedy=f"chmod 600 {key}")
    try:
        until = _valid_until(certificate)
    except (OSError, ValueError) as error:
        remedy = f"remove {scene.proxy_dir} and start Turnout again"
        message = f"{certificate} cannot be read: {error}"
        return Finding(check="ca", state="fail", message=message, remedy=remedy)
    if until < datetime.now(UTC):
        message = f"{certificate} expired on {until:%Y-%m-%d}"
        remedy = f"remove {scene.proxy_dir} and start Turnout again"
        return Finding(check="ca", state="fail", message=message, remedy=remedy)
    message = f"{certificate}, valid until {until:%Y-%m-%d}"
    return Finding(check="ca", state="ok", message=message)


def _valid_until(certificate: Path) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def _trust(scene: Scene) -> Finding:
    """Who trusts the authority: the system's store, or the variables of this environment."""
    body = _pem_body(scene.proxy_dir / CA_CERT)
    stores = (*_SYSTEM_STORES, ssl.get_default_verify_paths().openssl_cafile)
    if body and any(_holds(Path(store), body) for store in stores):
        message = "in the system's store: all tools that use it trust Turnout's authority"
        return Finding(check="ca trust", state="ok", message=message)
    if not _leads_to_us(scene):
        message = "tools started with `turnout run` trust it; nothing else does or needs to"
        return Finding(check="ca trust", state="ok", message=message)
    told = {name: scene.environ[name] for name in scene.trust_variables if scene.environ.get(name)}
    lacking = [name for name, path in told.items() if not body or not _holds(Path(path), body)]
    if told and not lacking:
        message = f"the CA variables of this environment hold it: {', '.join(told)}"
        return Finding(check="ca trust", state="ok", message=message)
    message = "HTTPS_PROXY leads through Turnout, but "
    message += f"{', '.join(lacking)} lack its authority" if lacking else "no CA variable names one"
    remedy = "start the tool with `turnout run -- TOOL`, which sets all of them"
    return Finding(check="ca trust", state="warn", message=message, remedy=remedy)


def _leads_to_us(scene: Scene) -> bool:
    """Whether this environment's HTTPS_PROXY is our proxy."""
    parts = _https_proxy(scene)
    ports = scene.own_ports | {scene.settings.proxy.port}
    return parts is not None and parts[0] in _LOOPBACK and parts[1] in ports


def _https_proxy(scene: Scene) -> tuple[str, int] | None:
    value = scene.environ.get("https_proxy") or scene.environ.get("HTTPS_PROXY") or ""
    try:
        parts = urlsplit(value if "//" in value else f"//{value}")
        return (parts.hostname, parts.port or 80) if parts.hostname else None
    except ValueError:
        return None


def _pem_body(path: Path) -> str:
    """The base64 of a PEM certificate in one line; empty if it cannot be read."""
    try:
        text = path.read_text("ascii", "ignore")
    except OSError:
        return ""
    inside = text.partition("-----BEGIN CERTIFICATE-----")[2].partition("-----END")[0]
    return "".join(inside.split())


def _holds(store: Path, body: str) -> bool:
    try:
        return body in store.read_text("ascii", "ignore").replace("\n", "").replace("\r", "")
    except OSError:
        return False


def _company_proxy(scene: Scene) -> Iterator[Finding]:
    """mitmproxy itself reads no proxy variable: upstreams behind one need the setting."""
    parts = _https_proxy(scene)
    if parts is None or scene.settings.proxy.upstream_proxy or _leads_to_us(scene):
        return
    host = f"{parts[0]}:{parts[1]}"
    message = f"HTTPS_PROXY is {host}, but the proxy connects to its targets directly"
    remedy = f"if they are only reached through it: proxy: {{upstream_proxy: http://{host}}}"
    yield Finding(check="company proxy", state="warn", message=message, remedy=remedy)


def _encoder(scene: Scene) -> Iterator[Finding]:
    """The embedded classifier's model and packages, where it is switched on."""
    if scene.settings.classifier.kind != "embedded":
        return
    check = "classifier"
    lacking = [
        name for name in ("onnxruntime", "onnxruntime-extensions", "numpy") if not _version(name)
    ]
    if lacking:
        message = f"{', '.join(lacking)} not installed: the default route decides what no rule does"
        remedy = "pip install 'turnout[local]', or classifier: {kind: off}"
        yield Finding(check=check, state="warn", message=message, remedy=remedy)
        return
    model = model_store.MODELS["sentence-encoder"]
    if not (scene.models_dir / model.file_name).is_file():
        message = "the sentence encoder is not here: the default route decides what no rule does"
        remedy = "turnout models pull"
        yield Finding(check=check, state="warn", message=message, remedy=remedy)
        return
    yield Finding(check=check, state="ok", message="the sentence encoder is here")


def _programs(scene: Scene) -> Finding:
    path = scene.environ.get("PATH", "")
    found = [
        f"{name}: {shutil.which(name, path=path) or 'not on the PATH'}"
        for name in ("llama-server", "vllm")
    ]
    version = _version("xllamacpp")
    found.insert(1, f"xllamacpp: {version or 'not installed'}")
    return Finding(check="engine programs", state="ok", message=", ".join(found))


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _engines(scene: Scene) -> Iterator[Finding]:
    """Whether each engine's command line can be made, and names a program and files that exist."""
    ready = []
    for target in scene.managed:
        why, remedy = obstacle(target, scene.environ)
        if why:
            yield Finding(check="engines", state=scene.missing(target), message=why, remedy=remedy)
            continue
        ready.append(target.name)
        for remark, remedy in remarks(target):
            yield Finding(check="engines", state="warn", message=remark, remedy=remedy)
    if ready:
        yield Finding(check="engines", state="ok", message=f"can start: {', '.join(ready)}")
    elif not scene.managed:
        yield Finding(check="engines", state="ok", message="the rules have no local engine")


def _keys(scene: Scene) -> Iterator[Finding]:
    """Keys of the remote upstreams that routes send to: there, never shown."""
    used = [t for t in scene.targets if t.name in scene.used and not t.upstream.is_managed]
    upstreams = {target.upstream.name: target for target in used}
    keyring = Keyring({name: t.upstream for name, t in upstreams.items()}, scene.environ)
    ready = []
    for name, target in upstreams.items():
        try:
            keyring.outgoing((), target, None)
        except MissingKey as error:
            message = f"{error}, so requests for it are refused"
            remedy = f"export {target.upstream.api_key_env or 'the key'}, or name a key file"
            yield Finding(check="keys", state="fail", message=message, remedy=remedy)
            continue
        ready.append(name)
        yield from _key_file(target)
    if ready:
        message = f"remote upstreams that can be asked: {', '.join(ready)}"
        yield Finding(check="keys", state="ok", message=message)


def _key_file(target: Target) -> Iterator[Finding]:
    file = target.upstream.api_key_file
    if not file:
        return
    path = Path(file).expanduser()
    status = path.stat()
    if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
        message = f"others can read the key file {file}"
        yield Finding(check="keys", state="warn", message=message, remedy=f"chmod 600 {file}")
