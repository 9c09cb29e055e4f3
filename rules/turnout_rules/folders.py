"""Where Turnout keeps things on this machine, by the XDG base directory convention."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The person's rules and settings when neither `--rules` nor `./rules` says otherwise."""
    return _folder(environ, "TURNOUT_CONFIG_DIR", "XDG_CONFIG_HOME", ".config")


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """What can be fetched or computed again: models, trained heads."""
    return _folder(environ, "TURNOUT_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """What must last: batches, files, logs, the proxy's own certificate authority."""
    return _folder(environ, "TURNOUT_DATA_DIR", "XDG_DATA_HOME", ".local/share")


def proxy_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The proxy's own mitmproxy folder: its CA, and nothing of the user's `~/.mitmproxy`."""
    return data_folder(environ) / "proxy"


def runtime_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Sockets and process records of the running instance; private to the user (mode 0700)."""
    if chosen := environ.get("TURNOUT_RUNTIME_DIR"):
        return Path(chosen)
    if base := environ.get("XDG_RUNTIME_DIR"):
        return Path(base) / "turnout"
    return cache_folder(environ) / "run"


def _folder(environ: Mapping[str, str], own: str, xdg: str, fallback: str) -> Path:
    if chosen := environ.get(own):
        return Path(chosen)
    base = environ.get(xdg)
    return (Path(base) if base else Path.home() / fallback) / "turnout"
