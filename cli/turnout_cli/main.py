"""The `turnout` command: finds the subcommand, imports only its module, reports in one line."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from typing import Protocol, cast

from turnout_rules.problems import RulesError

COMMANDS = {
    "up": "start the proxy and the sidecar",
    "run": "run a command with its LLM traffic going through Turnout",
    "init": "write starter rules into a folder",
    "check": "check a rules folder: errors and warnings with file, line and remedy",
    "explain": "say which rules a text hits, which wins and why",
    "test": "run a rules folder's probes",
    "replay": "decide recorded requests without sending them",
    "eval": "measure the semantic layer on labelled texts",
    "suggest": "propose examples and keywords from the decision log",
    "calibrate": "fit thresholds to labelled texts",
    "models": "fetch and list the local models",
    "plan": "compute what the local engines need and whether it fits",
    "doctor": "check this machine and the set-up",
    "status": "show the local engines and their queues",
    "start": "start a local engine",
    "stop": "stop a local engine",
    "logs": "show a local engine's output",
    "batch": "submit and follow work that can wait",
    "bench": "measure the decision path",
    "demo": "start everything, send five requests, show where they went",
}


class _Command(Protocol):
    """What a module in `commands/` offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the subcommand's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; return the exit status."""


def _load(name: str) -> _Command:
    return cast(_Command, importlib.import_module(f"turnout_cli.commands.{name}"))


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit status (2: wrong usage, 1: it failed)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="turnout", description="A router for LLM requests that slips under your tools."
    )
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((a for a in arguments if not a.startswith("-")), "")
    for name, summary in COMMANDS.items():
        sub = subparsers.add_parser(name, help=summary, description=summary.capitalize() + ".")
        if name == chosen:
            _load(name).add_arguments(sub)
    args = parser.parse_args(arguments)
    try:
        return _load(args.command).run(args)
    except RulesError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _version() -> str:
    from importlib.metadata import version

    return f"turnout {version('turnout')}"
