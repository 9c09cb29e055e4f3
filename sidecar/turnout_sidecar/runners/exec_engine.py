"""Becomes an engine: binds itself to the sidecar's life, takes its CPU cores, then execs.

A few lines on the bare standard library, started with `python -S -E`, because nothing of this can
be done from the sidecar without running code between fork and exec. It never outlives its exec.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process with its parent; leave at once if that is already dead.

    The wish survives exec. Elsewhere than on Linux the engines are reaped at the next start.
    """
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


def parse_cpus(text: str) -> set[int]:
    """`2-7,9` as a set; raises ValueError for anything else."""
    cpus: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def main() -> None:
    """Parse, apply what the system allows, exec."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--cpus", default="")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--oom-score", type=int, default=0)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    die_with_parent(args.parent)
    if args.cpus and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError, ValueError):
            os.sched_setaffinity(0, parse_cpus(args.cpus))
    with contextlib.suppress(OSError):
        os.nice(args.nice)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(args.oom_score))
    try:
        os.execvp(args.command[0], args.command)  # noqa: S606 - becoming the engine is the purpose
    except OSError as error:
        print(f"turnout: cannot run {args.command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
