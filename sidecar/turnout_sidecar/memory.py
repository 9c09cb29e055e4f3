"""How much memory is free for engines, by measurement and by budget, and when to stop admitting.

Free is what the machine says less what running engines were promised and have not yet touched: an
engine that is still loading, or whose KV cache is still empty, will want it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from turnout_rules.settings import Engines
from turnout_sidecar.backend import Backend
from turnout_sidecar.states import HOLDS_MEMORY, Memory, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One look at the machine."""

    ram_total: int
    ram_available: int
    swap_in_mb_s: float = 0.0
    gpu_total: dict[str, int] = field(default_factory=dict)
    gpu_free: dict[str, int] = field(default_factory=dict)

    @property
    def used_percent(self) -> float:
        """Share of RAM in use."""
        return 100.0 * (1 - self.ram_available / self.ram_total) if self.ram_total else 0.0


def guard(host: Host, settings: Engines) -> str:
    """Why nothing new may begin on this machine now; empty: it may."""
    if host.used_percent > settings.max_ram_percent:
        return (
            f"{host.used_percent:.0f} % of this machine's memory is in use "
            f"(engines.max_ram_percent is {settings.max_ram_percent:g})"
        )
    if host.swap_in_mb_s > settings.max_swap_in_mb_s:
        return (
            f"this machine reads {host.swap_in_mb_s:.0f} MB/s back from swap "
            f"(engines.max_swap_in_mb_s is {settings.max_swap_in_mb_s:g})"
        )
    return ""


def lowered(before: Engines, now: Engines, host: Host) -> frozenset[str]:
    """The devices that have a smaller budget than before."""
    devices = {"cpu"} if _is_less(now.ram_budget_bytes, before.ram_budget_bytes) else set()
    if _is_less(now.vram_budget_bytes, before.vram_budget_bytes):
        devices |= host.gpu_free.keys()
    return frozenset(devices)


def _is_less(now: int | None, before: int | None) -> bool:
    return now is not None and (before is None or now < before)


def memory_for(
    host: Host,
    settings: Engines,
    backends: Iterable[Backend],
    lowered: frozenset[str] = frozenset(),
) -> Memory:
    """Free bytes per device and the guard's word; `lowered`: see `Memory`."""
    promised: dict[str, int] = {}
    untouched: dict[str, int] = {}
    for backend in backends:
        if not backend.is_managed or backend.state not in HOLDS_MEMORY:
            continue
        need, device = backend.need_bytes or 0, backend.device
        promised[device] = promised.get(device, 0) + need
        if device == "cpu" or backend.state is State.STARTING:
            held = backend.activity.rss_bytes if device == "cpu" else 0
            untouched[device] = untouched.get(device, 0) + max(0, need - held)
    reserve = int(host.ram_total * (1 - settings.max_ram_percent / 100))
    measured = {"cpu": host.ram_available - reserve, **host.gpu_free}
    free = {device: bytes_ - untouched.get(device, 0) for device, bytes_ in measured.items()}
    budgets: dict[str, int | None] = dict.fromkeys(host.gpu_free, settings.vram_budget_bytes)
    budgets["cpu"] = settings.ram_budget_bytes
    over = {}
    for device, budget in budgets.items():
        if budget is not None:
            if promised.get(device, 0) > budget:
                over[device] = promised[device] - budget
            free[device] = min(free[device], budget - promised.get(device, 0))
    return Memory(free=free, guard=guard(host, settings), over=over, lowered=lowered & over.keys())
