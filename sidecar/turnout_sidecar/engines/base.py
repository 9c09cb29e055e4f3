"""What every engine adapter answers: how to start it, whether it is ready, how it is put to sleep.

Adapters know command lines, paths and words of their engine. They never start a process, keep no
state, and send nothing themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from turnout_rules.model import Model, Target
from turnout_sidecar import model_store

Health = Literal["ready", "loading", "dead"]
DEFAULT_CONTEXT = 4_096


class CannotLaunch(Exception):
    """The engine cannot even be started; the message says what is missing and what to do."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where and with what a launch happens."""

    port: int
    threads: int
    """CPU threads the engine should use."""
    device: str = "cpu"
    """`cpu` or `gpu0`, `gpu1`, … as planned."""
    environ: Mapping[str, str] = {}
    """What the engine gets of the sidecar's own environment."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A command line and what its environment gets besides the place's."""

    command: tuple[str, ...]
    env: dict[str, str] = {}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request to an engine's own administration."""

    method: str
    path: str


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine calls the figures that matter, in its Prometheus text; older names after."""

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_usage: tuple[str, ...] = ()


class Engine:
    """The defaults fit an OpenAI-compatible server with `/health`."""

    name = ""
    health_path = "/health"
    api_path = "/v1"
    metrics_path = "/metrics"
    metrics = Metrics()
    sleep_requests: tuple[Request, ...] = ()
    wake_requests: tuple[Request, ...] = ()
    uses_gpu = False
    """Whether it only runs on a GPU."""

    def launch(self, target: Target, place: Place) -> Launch:
        """The command line; raises `CannotLaunch`."""
        raise CannotLaunch(f"{target.upstream.name}: {self.name} engines are not started here")

    def health(self, status: int) -> Health:
        """What an answer of `health_path` means. (No answer at all is `loading`.)"""
        if status == 200:
            return "ready"
        return "loading" if status in (404, 425, 429, 503) else "dead"

    def can_sleep(self, model: Model) -> bool:
        """Whether sleep is allowed and possible for this model."""
        return bool(self.sleep_requests) and model.sleep

    def seats(self, target: Target) -> int:
        """How many requests may be in flight."""
        return max(1, target.model.max_num_seqs)

    def served_name(self, target: Target) -> str:
        """The model name to send to the engine."""
        return target.model.upstream_model


def context_of(model: Model) -> int:
    """Tokens per request: what was configured, else a size that fits any workstation."""
    return model.max_model_len or model.context or DEFAULT_CONTEXT


def model_file(model: Model) -> str:
    """`model_path` as a path if there is such a file, or what the model store has by that name.

    Anything else is left as it is: vLLM takes names of a hub.
    """
    wanted = model.model_path or model.upstream_model
    path = Path(wanted).expanduser()
    if path.exists():
        return str(path.absolute())
    stored = model_store.path_of(wanted) if wanted in model_store.MODELS else None
    return str(stored) if stored is not None else wanted
