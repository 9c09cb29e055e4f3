"""`python -m turnout_addon`: the proxy as a process of its own.

Loads the rules, starts one of the two masters with the options they ask for, and says in one JSON
line (on stdout, or in `--ready-file`) where it listens. Ends on SIGTERM and SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from mitmproxy import ctx, exceptions
from mitmproxy import options as mitmproxy_options
from mitmproxy.tools import cmdline
from mitmproxy.tools import main as mitmproxy_main

from turnout_addon import masters
from turnout_addon.addon import Turnout
from turnout_addon.guard import is_loopback_host
from turnout_addon.logs import leave_connections_out_of_logs
from turnout_addon.options import (
    PASSWORD_VARIABLE,
    Listeners,
    launch_options,
    proxy_password,
    web_options,
)
from turnout_rules.folders import proxy_folder
from turnout_rules.loading import find_rules_folder, load_rules
from turnout_rules.problems import RulesError
from turnout_rules.settings import Proxy, Settings

BEAT_S = 1.0


class Ready:
    """Says where the proxy listens, once it does."""

    name = "turnout_ready"

    def __init__(self, turnout: Turnout, ready_file: Path | None, confdir: Path) -> None:
        """`ready_file` appears whole or not at all."""
        self._turnout = turnout
        self._ready_file = ready_file
        self._confdir = confdir
        self._beating: asyncio.Task[None] | None = None

    def running(self) -> None:
        """All listeners are up."""
        state = json.dumps(self._state())
        if self._ready_file is not None:
            fresh = self._ready_file.with_name(f".{self._ready_file.name}.{os.getpid()}")
            fresh.touch(mode=0o600)
            fresh.write_text(state)
            fresh.replace(self._ready_file)
            self._beating = asyncio.get_running_loop().create_task(_beat(self._ready_file))
        else:
            print(state, flush=True)

    def done(self) -> None:
        """No more signs of life."""
        if self._beating is not None:
            self._beating.cancel()

    def _state(self) -> dict[str, Any]:
        front, reverse = (
            server.listen_addrs[0][1] for server in ctx.master.addons.get("proxyserver").servers
        )
        host: str = ctx.options.listen_host
        settings = self._turnout.in_force().settings
        return {
            "pid": os.getpid(),
            # Every address of this machine is none to connect to.
            "proxy_host": "127.0.0.1" if host in ("", "0.0.0.0", "::") else host,  # noqa: S104
            "proxy_port": front,
            "auth": "" if is_loopback_host(host) else settings.proxy.auth or PASSWORD_VARIABLE,
            "base_url_port": reverse,
            "ca_cert": str(self._confdir / "mitmproxy-ca-cert.pem"),
            "web_url": getattr(ctx.master, "web_url", ""),
            "metrics_port": self._turnout.metrics_port,
        }


async def _beat(ready_file: Path) -> None:
    """Touch the ready file as long as the event loop turns: who started us may end us if not."""
    while True:
        with contextlib.suppress(OSError):
            os.utime(ready_file)
        await asyncio.sleep(BEAT_S)


def main(argv: list[str] | None = None) -> int:
    """Run until told to stop; 1 if the rules or the set-up cannot be used."""
    args = _parser().parse_args(argv)
    try:
        folder = find_rules_folder(args.rules)
        rules = load_rules(folder)
        proxy_password(rules.settings, os.environ, args.listen_host)
        options = _options(args, rules.settings)
    except (RulesError, OSError, ValueError, exceptions.OptionsError) as error:
        print(error, file=sys.stderr)
        return 1
    if not args.verbose:
        leave_connections_out_of_logs()
    confdir = Path(options["confdir"])
    confdir.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make(opts: mitmproxy_options.Options) -> masters.LeanMaster | masters.LookingMaster:
        turnout = Turnout(rules, folder=folder, keeps_bodies=not args.lean)
        ready = Ready(turnout, args.ready_file, confdir)
        kind = masters.LeanMaster if args.lean else masters.LookingMaster
        master = kind(opts, turnout, ready)
        _set(opts, options)
        return master

    parser = cmdline.mitmdump if args.lean else cmdline.mitmweb
    arguments = ["--set", f"confdir={confdir}", *(["-v"] if args.verbose else []), *args.mitmproxy]
    mitmproxy_main.run(make, parser, arguments)  # type: ignore[arg-type]
    return 0


def _options(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    listeners = _listeners(args, settings.proxy)
    options = launch_options(settings, listeners, proxy_folder())
    options["turnout_rules"] = str(args.rules or "")
    options["turnout_sidecar"] = args.sidecar or ""
    options["turnout_gateway"] = args.gateway or ""
    options["turnout_metrics_port"] = -1 if args.metrics_port is None else args.metrics_port
    if not args.lean:
        options |= web_options(listeners)
    return options


def _listeners(args: argparse.Namespace, proxy: Proxy) -> Listeners:
    """Real ports for all: mitmproxy cannot have two listeners on port 0."""
    return Listeners(
        host=args.listen_host or proxy.listen_host,
        port=_port(args.port, proxy.port),
        base_url_port=_port(args.base_url_port, proxy.base_url_port),
        web_port=_port(args.web_port, proxy.web_port),
    )


def _port(chosen: int | None, configured: int) -> int:
    port = configured if chosen is None else chosen
    if port:
        return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _set(opts: mitmproxy_options.Options, chosen: dict[str, Any]) -> None:
    """mitmproxy keeps unknown names for later in silence; here they are mistakes."""
    known = {name: value for name, value in chosen.items() if name in opts}
    unknown = set(chosen) - set(known) - {"flow_detail"}
    if unknown:
        raise exceptions.OptionsError(f"turnout: this mitmproxy has no option {min(unknown)!r}")
    opts.update(**known)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m turnout_addon", description=__doc__)
    parser.add_argument("--rules", type=Path, metavar="DIR", help="rules folder")
    parser.add_argument("--lean", action="store_true", help="headless: no mitmweb, faster")
    parser.add_argument(
        "--listen-host",
        default="",
        metavar="ADDRESS",
        help="address to listen on, instead of the settings' own; off loopback a password is asked",
    )
    parser.add_argument("--port", type=int, help="HTTPS_PROXY port; 0: any free one")
    parser.add_argument("--base-url-port", type=int, help="reverse listener's port; 0: any")
    parser.add_argument("--web-port", type=int, help="mitmweb's port; 0: any")
    parser.add_argument("--metrics-port", type=int, help="Prometheus port on loopback; 0: any")
    parser.add_argument("--sidecar", metavar="URL", help="http URL or unix:PATH")
    parser.add_argument("--gateway", metavar="URL", help="the sidecar's gateway")
    parser.add_argument("--ready-file", type=Path, help="written when all listeners are up")
    parser.add_argument("--verbose", action="store_true", help="log more; never prompts or keys")
    parser.add_argument("mitmproxy", nargs="*", help="further mitmproxy arguments, after `--`")
    return parser


if __name__ == "__main__":
    sys.exit(main())
