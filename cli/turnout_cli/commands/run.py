"""`turnout run -- CMD…`: the command, with its LLM traffic going through Turnout."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from turnout_cli.environment import (
    base_url_environment,
    proxy_environment,
    write_bundle,
    write_trust_store,
)
from turnout_cli.launching import Launch, LaunchError, Running, launched, read_record
from turnout_rules.folders import data_folder
from turnout_rules.loading import find_rules_folder, load_rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything after `--` is the command."""
    parser.add_argument(
        "--base-url",
        action="store_true",
        help="set base-URL variables instead of proxy and certificate variables",
    )
    parser.add_argument(
        "--rules", type=Path, metavar="DIR", help="rules folder, when no instance runs yet"
    )
    parser.add_argument("cmd", nargs="+", metavar="CMD", help="the command and its arguments")


def run(args: argparse.Namespace) -> int:
    """Use the running instance, or start one for as long as the command lives."""
    running = read_record()
    if running is None:
        return asyncio.run(_run_with_own_instance(args))
    try:
        environment = _environment(args, running)
    except LaunchError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1
    try:
        os.execvpe(args.cmd[0], args.cmd, environment)  # noqa: S606 - the person's own command
    except OSError as error:
        return _not_started(args.cmd[0], error)


async def _run_with_own_instance(args: argparse.Namespace) -> int:
    folder = find_rules_folder(args.rules)
    load_rules(folder)
    log = data_folder() / "run.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    launch = Launch(rules=folder, is_lean=True, port=0, base_url_port=0, sidecar_port=0, log=log)
    print(f"turnout: no instance is running, starting one (log: {log})", file=sys.stderr)
    try:
        async with launched(launch) as (_, running):
            return await _run_child(args.cmd, _environment(args, running))
    except LaunchError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1


async def _run_child(command: list[str], environment: dict[str, str]) -> int:
    """Run in this terminal's foreground; a Ctrl-C reaches the child from the terminal itself."""
    try:
        child = await asyncio.create_subprocess_exec(*command, env=environment)
    except OSError as error:
        return _not_started(command[0], error)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)

    def forward(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, forward, number)
    status = await child.wait()
    return status if status >= 0 else 128 - status


def _environment(args: argparse.Namespace, running: Running) -> dict[str, str]:
    if args.base_url:
        return base_url_environment(os.environ, base_url=running.base_url)
    login = os.environ.get(running.auth, "") if running.auth else ""
    if running.auth and not login:
        raise LaunchError(f"the proxy wants a password: set {running.auth} to its user:password")
    ca_cert = Path(running.ca_cert)
    bundle = write_bundle(ca_cert)
    return proxy_environment(
        os.environ,
        port=running.proxy_port,
        host=running.proxy_host,
        login=login,
        ca_cert=ca_cert,
        bundle=bundle,
        trust_store=write_trust_store(bundle),
    )


def _not_started(name: str, error: OSError) -> int:
    """The statuses of a shell: 127 not found, 126 found and not runnable."""
    print(f"turnout: cannot run {name}: {error.strerror}", file=sys.stderr)
    return 127 if isinstance(error, FileNotFoundError) else 126
