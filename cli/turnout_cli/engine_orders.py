"""What `turnout start` and `turnout stop` share: an order to one local engine, and its answer."""

from __future__ import annotations

import argparse
import sys

from turnout_cli.sidecar_access import SidecarError, ask, backend_path, running_url


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which engine, and whose."""
    parser.add_argument("backend", metavar="BACKEND", help="its target name, e.g. local/chat")
    parser.add_argument("--url", help="sidecar, e.g. http://127.0.0.1:8083 (found by itself)")


def carry_out(args: argparse.Namespace, action: str, done: str) -> int:
    """0 when it is `done`; 1 with the sidecar's reason if it cannot be."""
    try:
        url = args.url or running_url()
        ask(url, "POST", backend_path(args.backend, action), timeout_s=None)
    except SidecarError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1
    print(f"{args.backend} is {done}")
    return 0
