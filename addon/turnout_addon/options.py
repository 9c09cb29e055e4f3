"""Settings as mitmproxy options: what a launcher passes, what a plain `mitmweb -s` adopts.

Names are checked here, because mitmproxy ignores unknown options in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from mitmproxy import addonmanager, exceptions
from mitmproxy import options as mitmproxy_options

from turnout_addon.guard import is_loopback_host
from turnout_addon.hosts import InterceptList, Origin, parse_origin
from turnout_rules.folders import runtime_folder
from turnout_rules.settings import Proxy, Settings

TOKEN_VARIABLE = "TURNOUT_SIDECAR_TOKEN"  # noqa: S105 - the variable's name, no token
PASSWORD_VARIABLE = "TURNOUT_PROXY_AUTH"  # noqa: S105
"""Read where `proxy.auth` names no other."""
WEB_COLUMNS = ["icon", "path", "comment", "method", "status", "size", "time"]


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """Where the proxy listens; every port is a real one."""

    host: str
    port: int
    base_url_port: int
    web_port: int


def declare_options(loader: addonmanager.Loader) -> None:
    """The addon's own options; mitmweb shows them in its Options tab."""
    loader.add_option("turnout_rules", str, "", "Folder with Turnout's rule files.")
    loader.add_option(
        "turnout_sidecar", str, "", "Turnout's sidecar: an http URL or unix:PATH of its socket."
    )
    loader.add_option("turnout_gateway", str, "", "URL of the sidecar's gateway on loopback.")
    loader.add_option(
        "turnout_metrics_port", int, -1, "Loopback port for Prometheus; 0: any, -1: none."
    )


def launch_options(settings: Settings, listeners: Listeners, confdir: Path) -> dict[str, Any]:
    """Every mitmproxy option that a launched proxy runs with."""
    proxy = settings.proxy
    return {
        **_core_options(settings),
        "confdir": str(confdir),
        "listen_host": listeners.host,
        "mode": [
            _front_mode(proxy, listeners.port),
            reverse_mode(proxy, listeners.base_url_port),
        ],
        "ssl_verify_upstream_trusted_ca": _trusted_roots(proxy, confdir),
        "flow_detail": 0,
    }


def web_options(listeners: Listeners) -> dict[str, Any]:
    """What mitmweb has besides."""
    return {
        "web_open_browser": False,
        "web_host": "127.0.0.1",
        "web_port": listeners.web_port,
        "web_columns": WEB_COLUMNS,
    }


def adopt_options(options: mitmproxy_options.Options, settings: Settings) -> None:
    """Under a mitmproxy that somebody else started: set what they left at its default."""
    core = _core_options(settings)
    modes = list(options.mode)
    if not any(mode.startswith("reverse:") for mode in modes):
        core["mode"] = [*modes, reverse_mode(settings.proxy, settings.proxy.base_url_port)]
    if "web_columns" in options:
        core["web_columns"] = WEB_COLUMNS
    changes = {n: v for n, v in core.items() if n == "mode" or not options.has_changed(n)}
    if unknown := [name for name in changes if name not in options]:
        raise exceptions.OptionsError(f"turnout: this mitmproxy has no option {unknown[0]!r}")
    options.update(**changes)


def follow_settings(
    options: mitmproxy_options.Options, settings: Settings, began: Settings
) -> None:
    """Under any mitmproxy, after a save: what of the settings its options hold: the hosts.

    The reverse listener still bears the origin that it `began` with, whose connections must stay
    opened: the addon leads their requests to the new one.
    """
    hosts = _core_options(settings, began.proxy.origin)["allow_hosts"]
    if options.allow_hosts != hosts:
        options.update(allow_hosts=hosts)


def reverse_mode(proxy: Proxy, port: int) -> str:
    """The listener for tools with a base-URL setting; the addon leads each request to its origin.

    `http:` in the mode although the origin speaks TLS: with `https:` mitmproxy also opens the UDP
    port for QUIC. It listens on loopback whatever `listen_host` says, because a client cannot give
    a proxy password there.
    """
    origin = parse_origin(proxy.origin)
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return f"reverse:http://{host}:{origin.port}@127.0.0.1:{port}"


def proxy_password(settings: Settings, environ: Mapping[str, str], listening: str = "") -> str:
    """`user:password` for a listener that other machines reach; refuses to go without.

    `listening`: the address really listened on, which a changed setting does not move.
    """
    host = listening or settings.proxy.listen_host
    if is_loopback_host(host):
        return ""
    name = settings.proxy.auth or PASSWORD_VARIABLE
    password = environ.get(name, "")
    if ":" not in password:
        raise exceptions.OptionsError(
            f"turnout: the proxy listens on {host}, which other machines reach. "
            f"Put user:password into the environment variable {name} (`proxy.auth` may name "
            "another), or listen on 127.0.0.1."
        )
    return password


def sidecar_token(environ: Mapping[str, str]) -> str:
    """What a sidecar off loopback demands of its callers; empty where none is set."""
    return environ.get(TOKEN_VARIABLE, "")


def sidecar_of(options: mitmproxy_options.Options, settings: Settings) -> str:
    """The sidecar's address: the option, else the settings' socket, else the usual one."""
    chosen: str = options.turnout_sidecar
    if chosen:
        return chosen
    socket = settings.sidecar.socket or str(runtime_folder() / "sidecar.sock")
    return f"unix:{socket}"


def gateway_of(options: mitmproxy_options.Options, settings: Settings) -> Origin:
    """Where the sidecar's gateway listens."""
    return parse_origin(options.turnout_gateway or f"http://127.0.0.1:{settings.sidecar.port}")


def own_ports(options: mitmproxy_options.Options, settings: Settings) -> set[int]:
    """The ports of mitmweb and the sidecar, as far as they are known beforehand."""
    web = {options.web_port} if "web_port" in options else set()
    return web | ({settings.sidecar.port} if settings.sidecar.port else set())


def _core_options(settings: Settings, *further_origins: str) -> dict[str, Any]:
    """What the addon needs under every master."""
    proxy = settings.proxy
    origins = [parse_origin(url) for url in dict.fromkeys((proxy.origin, *further_origins))]
    opened = [*proxy.intercept, *(f"{origin.host}:{origin.port}" for origin in origins)]
    return {
        "connection_strategy": "lazy",
        "http2": False,
        "allow_hosts": InterceptList(opened).patterns(),
        # What a WebSocket carries is no model call: its frames pass as the bytes they are.
        "websocket": False,
        "rawtcp": True,
    }


def _front_mode(proxy: Proxy, port: int) -> str:
    if proxy.upstream_proxy:
        return f"upstream:{proxy.upstream_proxy}@{port}"
    return f"regular@{port}"


def _trusted_roots(proxy: Proxy, confdir: Path) -> str | None:
    """mitmproxy's option replaces the public roots: give it both in one file."""
    if not proxy.upstream_ca:
        return None
    import certifi

    extra = Path(proxy.upstream_ca).expanduser()
    try:
        added = extra.read_bytes()
    except OSError as error:
        raise exceptions.OptionsError(f"turnout: proxy.upstream_ca: {error}") from error
    confdir.mkdir(mode=0o700, parents=True, exist_ok=True)
    bundle = confdir / "upstream-roots.pem"
    fresh = bundle.with_suffix(".new")
    fresh.write_bytes(Path(certifi.where()).read_bytes() + b"\n" + added)
    fresh.replace(bundle)
    return str(bundle)
