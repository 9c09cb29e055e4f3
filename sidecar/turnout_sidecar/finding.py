"""What the doctor finds and what it is given to look at. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from turnout_rules.model import Target
from turnout_rules.settings import Settings
from turnout_sidecar.machine import Machine

State = Literal["ok", "warn", "fail"]
GIB = 2**30


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One check's outcome. `fail`: something that the rules ask for will not work."""

    check: str
    state: State
    message: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is looked at: the rules as far as they can be read, this machine, this environment."""

    settings: Settings
    environ: Mapping[str, str]
    machine: Machine
    runtime_dir: Path
    models_dir: Path
    data_dir: Path
    proxy_dir: Path
    """Holds the proxy's certificate authority."""
    targets: tuple[Target, ...] = ()
    """Every model that the upstreams list, and every target that a route names."""
    used: frozenset[str] = frozenset()
    """Names of the targets that some route sends to."""
    own_ports: frozenset[int] = frozenset()
    """Ports of the Turnout that runs now."""
    trust_variables: tuple[str, ...] = ()
    """Environment variables by which tools are told what to trust."""
    swap_in_mb_s: float = field(default=0.0)
    """Read back from swap while the doctor looked."""

    @property
    def managed(self) -> list[Target]:
        """Models whose engines Turnout runs."""
        return [target for target in self.targets if target.upstream.is_managed]

    def missing(self, target: Target) -> State:
        """How bad it is that `target` cannot work."""
        return "fail" if target.name in self.used else "warn"


def gib(count: float) -> str:
    """A size for people."""
    return f"{count / GIB:.1f} GiB"
