"""What this machine has: memory, swap, graphics cards and who holds their memory.

Only looks; decides nothing and changes nothing. A look blocks for a few milliseconds: call it in a
thread. A machine without NVML (no NVIDIA driver) is a machine without cards, and says why.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psutil
import pynvml

# A driver that is not there seldom appears while a process runs.
NVML_RETRY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory of a card. `used_bytes`: None where the driver does not tell."""

    pid: int
    used_bytes: int | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card. `index` is NVML's, which is CUDA's under `CUDA_DEVICE_ORDER=PCI_BUS_ID`."""

    index: int
    name: str
    total_bytes: int
    free_bytes: int
    drives_display: bool | None
    processes: tuple[GpuProcess, ...] = ()
    uuid: str = ""
    """`GPU-…`, as `CUDA_VISIBLE_DEVICES` may name it; empty where the driver does not tell."""

    @property
    def device(self) -> str:
        """Its name in plans and budgets."""
        return f"gpu{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One look. `gpu_error` says why no card was seen; empty if the driver answered."""

    ram_total_bytes: int
    ram_available_bytes: int
    swap_total_bytes: int
    swap_used_bytes: int
    swap_in_mb_s: float = 0.0
    gpus: tuple[Gpu, ...] = ()
    gpu_error: str = ""


class MachineProbe:
    """Looks at the machine; keeps only what a rate and a quiet retry need."""

    def __init__(self) -> None:
        """Nothing is asked yet."""
        # The last look's swap-in counter and its time, for the rate.
        self._swapped: tuple[float, int] | None = None
        self._is_nvml_up = False
        self._retry_at = 0.0
        self._gpu_error = ""

    def look(self) -> Machine:
        """All figures, now; blocks."""
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        gpus = self._gpus()
        return Machine(
            ram_total_bytes=memory.total,
            ram_available_bytes=memory.available,
            swap_total_bytes=swap.total,
            swap_used_bytes=swap.used,
            swap_in_mb_s=self._swap_rate(swap.sin),
            gpus=gpus,
            gpu_error=self._gpu_error,
        )

    def _swap_rate(self, read_bytes: int) -> float:
        """Megabytes a second read back from swap since the look before."""
        now = time.monotonic()
        before, self._swapped = self._swapped, (now, read_bytes)
        if before is None or now <= before[0]:
            return 0.0
        return max(0, read_bytes - before[1]) / (now - before[0]) / 1e6

    def _gpus(self) -> tuple[Gpu, ...]:
        if not self._is_nvml_up and not self._start_nvml():
            return ()
        try:
            count = pynvml.nvmlDeviceGetCount()
            return tuple(_gpu(index) for index in range(count))
        except pynvml.NVMLError as error:
            # A driver that was updated or a card that fell off the bus: begin anew next time.
            self._is_nvml_up = False
            self._retry_at = time.monotonic() + NVML_RETRY_S
            self._gpu_error = str(error)
            return ()

    def _start_nvml(self) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._retry_at = time.monotonic() + NVML_RETRY_S
            self._gpu_error = str(error)
            return False
        self._is_nvml_up, self._gpu_error = True, ""
        return True


def _gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name = pynvml.nvmlDeviceGetName(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index=index,
        name=name if isinstance(name, str) else name.decode(errors="replace"),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        drives_display=_drives_display(handle),
        processes=_processes(handle),
        uuid=_uuid(handle),
    )


def _drives_display(handle: Any) -> bool | None:
    try:
        return bool(pynvml.nvmlDeviceGetDisplayActive(handle))
    except pynvml.NVMLError:
        return None


def _uuid(handle: Any) -> str:
    try:
        uuid = pynvml.nvmlDeviceGetUUID(handle)
    except pynvml.NVMLError:
        return ""
    return uuid if isinstance(uuid, str) else uuid.decode(errors="replace")


def _processes(handle: Any) -> tuple[GpuProcess, ...]:
    """Compute processes, then those that only draw; a container may hide both."""
    found: dict[int, GpuProcess] = {}
    for ask in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        try:
            running = ask(handle)
        except pynvml.NVMLError:
            continue
        for process in running:
            pid, used = int(process.pid), process.usedGpuMemory
            found.setdefault(
                pid,
                GpuProcess(
                    pid=pid, used_bytes=None if used is None else int(used), name=_name(pid)
                ),
            )
    return tuple(found.values())


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return ""
