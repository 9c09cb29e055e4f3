"""`turnout up`: proxy and sidecar in the foreground until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
from pathlib import Path

from turnout_cli.environment import write_bundle
from turnout_cli.launching import (
    Launch,
    LaunchError,
    Running,
    launched,
    read_record,
    remove_record,
    write_record,
)
from turnout_rules.loading import find_rules_folder, load_rules


def port(text: str) -> int:
    """A TCP port, 0 to 65535; raises `ArgumentTypeError`."""
    if not (text.isascii() and text.isdigit() and int(text[:6]) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 (any free one) to 65535")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Ports override `turnout.yaml`; 0 takes any free port."""
    parser.add_argument("--rules", type=Path, metavar="DIR", help="rules folder")
    parser.add_argument("--lean", action="store_true", help="headless: no mitmweb, faster")
    parser.add_argument("--port", type=port, help="HTTPS_PROXY port")
    parser.add_argument("--base-url-port", type=port, help="port for tools with a base-URL setting")
    parser.add_argument("--web-port", type=port, help="mitmweb port")
    parser.add_argument("--sidecar-port", type=port, help="gateway port")
    parser.add_argument(
        "--metrics-port", type=port, help="port of the proxy's Prometheus metrics (default: none)"
    )
    parser.add_argument("--free-ports", action="store_true", help="take free ports everywhere")
    parser.add_argument("--verbose", action="store_true", help="log more; never prompts or keys")


def run(args: argparse.Namespace) -> int:
    """Start, say where everything is, wait; the exit status is the proxy's."""
    folder = find_rules_folder(args.rules)
    rules = load_rules(folder)
    for warning in rules.warnings:
        print(warning, file=sys.stderr)
    if (other := read_record()) and not args.free_ports:
        print(
            f"turnout: already running as process {other.pid} (proxy port {other.proxy_port}); "
            "stop it first, or pass --free-ports for a second one",
            file=sys.stderr,
        )
        return 1
    free = 0 if args.free_ports else None
    launch = Launch(
        rules=folder,
        is_lean=args.lean,
        port=free if args.port is None else args.port,
        base_url_port=free if args.base_url_port is None else args.base_url_port,
        web_port=free if args.web_port is None else args.web_port,
        sidecar_port=free if args.sidecar_port is None else args.sidecar_port,
        metrics_port=args.metrics_port,
        verbose=args.verbose,
    )
    try:
        return asyncio.run(_serve(launch, len(rules.table.routes)))
    except LaunchError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1


async def _serve(launch: Launch, route_count: int) -> int:
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(_serve_until_ended(launch, route_count))
    # From the first moment on: a stop while the planes start leaves nothing behind, either.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, serving.cancel)
    try:
        return await serving
    except asyncio.CancelledError:
        return 0


async def _serve_until_ended(launch: Launch, route_count: int) -> int:
    async with launched(launch) as (instance, running):
        bundle = write_bundle(Path(running.ca_cert))
        write_record(running)
        print(_welcome(launch, running, route_count, bundle), flush=True)
        try:
            return await instance.watch(_say)
        except asyncio.CancelledError:
            _say("stopping")
            raise
        finally:
            remove_record()


def _welcome(launch: Launch, running: Running, route_count: int, bundle: Path) -> str:
    lines = [
        f"Turnout is up: {route_count} routes from {launch.rules} (edit them, they reload).",
        "",
        "  any tool       turnout run -- YOUR-TOOL",
        f"  by hand        export HTTPS_PROXY={running.proxy_url} \\",
        f"                        SSL_CERT_FILE={shlex.quote(str(bundle))}",
        "                 (`turnout run -- env` shows every variable)",
        f"  base URL       {running.base_url}/v1   (no certificate needed)",
        f"  gateway        http://127.0.0.1:{running.sidecar_port}/v1   (local engines directly)",
    ]
    if running.web_url:
        lines.append(f"  watch          {running.web_url}")
    if running.metrics_port:
        urls = (
            f"http://127.0.0.1:{p}/metrics" for p in (running.metrics_port, running.sidecar_port)
        )
        lines.append(f"  metrics        {'   '.join(urls)}")
    return "\n".join([*lines, "", "Ctrl-C stops everything."])


def _say(message: str) -> None:
    print(f"turnout: {message}", file=sys.stderr, flush=True)
