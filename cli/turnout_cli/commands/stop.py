"""`turnout stop BACKEND`: let a local engine finish what it serves for a moment, then stop it."""

from __future__ import annotations

import argparse

from turnout_cli.engine_orders import add_arguments as add_arguments
from turnout_cli.engine_orders import carry_out


def run(args: argparse.Namespace) -> int:
    """0 when it is stopped; 1 with the sidecar's reason if it cannot be."""
    return carry_out(args, "stop", "stopped")
