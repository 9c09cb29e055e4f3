"""`turnout logs BACKEND`: a local engine's last output, and what follows with `-f`."""

from __future__ import annotations

import argparse
import sys

from turnout_cli.sidecar_access import SidecarError, backend_path, follow, running_url


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which one, how much."""
    parser.add_argument("backend", metavar="BACKEND", help="its target name, e.g. local/chat")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("-n", "--lines", type=int, default=200, metavar="N", help="(200)")
    parser.add_argument("--url", help="sidecar, e.g. http://127.0.0.1:8083 (found by itself)")


def run(args: argparse.Namespace) -> int:
    """Print; 1 with the sidecar's reason if there is no such backend."""
    query = f"?lines={max(0, args.lines)}" + ("&follow=1" if args.follow else "")
    try:
        url = args.url or running_url()
        for line in follow(url, backend_path(args.backend, "logs") + query):
            print(line, flush=args.follow)
    except SidecarError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1
    return 0
