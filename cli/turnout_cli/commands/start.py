"""`turnout start BACKEND`: start a local engine and wait until it is ready."""

from __future__ import annotations

import argparse

from turnout_cli.engine_orders import add_arguments as add_arguments
from turnout_cli.engine_orders import carry_out


def run(args: argparse.Namespace) -> int:
    """0 when it is ready; 1 with the sidecar's reason if it cannot be."""
    return carry_out(args, "start", "ready")
