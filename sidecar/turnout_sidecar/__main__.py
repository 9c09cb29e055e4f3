"""`python -m turnout_sidecar --rules DIR`: the sidecar in the foreground until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

from turnout_rules.loading import find_rules_folder, settle_memory
from turnout_rules.problems import RulesError
from turnout_sidecar.app import build_app
from turnout_sidecar.guarding import ListenRefused, check_listener
from turnout_sidecar.listening import (
    CannotListen,
    clear,
    listen,
    read_record,
    record_path,
    socket_path,
    write_json,
)
from turnout_sidecar.logs import set_up_logging
from turnout_sidecar.service import Service

log = logging.getLogger("turnout_sidecar")


CLASSIFIER_WAIT_S = 10.0
"""It answers at once, but is called ready once first requests get the semantic layer too."""


BEAT_S = 1.0


def main(argv: list[str] | None = None) -> int:
    """Serve; the exit status is 0 after a stop that was asked for, 1 for a start that failed."""
    # A thread that computes gives the event loop its turn after a millisecond, not five.
    sys.setswitchinterval(0.001)
    args = _arguments().parse_args(argv)
    set_up_logging(verbose=args.verbose)
    try:
        return asyncio.run(_serve(args))
    except (RulesError, ListenRefused, CannotListen) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m turnout_sidecar", description=__doc__)
    parser.add_argument("--rules", type=Path, metavar="DIR", help="rules folder")
    parser.add_argument(
        "--listen-host",
        default="",
        metavar="ADDRESS",
        help="address to listen on, instead of the settings' own; off loopback a token is asked",
    )
    parser.add_argument("--port", type=int, help="TCP port; 0: any free one")
    parser.add_argument("--socket", default="", metavar="PATH", help="Unix socket")
    parser.add_argument("--ready-file", type=Path, metavar="F", help="written once it answers")
    parser.add_argument("--verbose", action="store_true", help="log more; never prompts or keys")
    return parser


async def _serve(args: argparse.Namespace) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    service = Service(find_rules_folder(args.rules))
    sidecar = service.live.current.settings.sidecar
    host = args.listen_host or sidecar.listen_host
    token = check_listener(host, os.environ)
    path = await asyncio.to_thread(socket_path, args.socket or sidecar.socket)
    service.classifier.socket = str(path)
    port = sidecar.port if args.port is None else args.port
    runner, listening = await listen(build_app(service, token=token), host, port, path)
    stack = contextlib.ExitStack()
    try:
        if read_record() is None:
            write_json(record_path(), listening)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_either(stop, service.classifier.settled), CLASSIFIER_WAIT_S)
        settle_memory()
        if args.ready_file is not None:
            write_json(args.ready_file, listening)
            beating = asyncio.create_task(_beat(args.ready_file))
            stack.callback(beating.cancel)
        log.info("the sidecar answers on port %d and %s", listening.port, listening.socket)
        await stop.wait()
        log.info("stopping")
        service.is_closing = True
    finally:
        stack.close()
        clear(listening)
        await runner.cleanup()
    return 0


async def _beat(ready_file: Path) -> None:
    """Touch the ready file as long as the event loop turns: who started us may end us if not."""
    while True:
        with contextlib.suppress(OSError):
            os.utime(ready_file)
        await asyncio.sleep(BEAT_S)


async def _either(*events: asyncio.Event) -> None:
    """Until one of `events` is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


if __name__ == "__main__":
    sys.exit(main())
