"""On which device a model will run: the card its settings name, else the emptiest, else the CPU.

Pure: the machine as it was seen, and the environment, are passed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from turnout_rules.model import Target
from turnout_sidecar.engines import engine_for
from turnout_sidecar.machine import Gpu, Machine
from turnout_sidecar.planner import Room, Wish, named_cards, visible_cards, wish_for


def room_for(target: Target, seen: Machine, environ: Mapping[str, str]) -> Room:
    """The device `target` will run on, with what is free there now.

    `environ` is the sidecar's own. Of an engine that spreads over several cards, the room is the
    card with the least free, for it decides.
    """
    wish = wish_for(target)
    cards = _cards(target, wish, seen, environ)
    if not cards:
        return Room("cpu", seen.ram_available_bytes, seen.ram_total_bytes)
    card = min(cards, key=lambda gpu: gpu.free_bytes)
    drives_display = any(gpu.drives_display for gpu in cards)
    return Room(card.device, card.free_bytes, card.total_bytes, drives_display)


def lacking_cards(target: Target, seen: Machine, environ: Mapping[str, str]) -> str:
    """Why an engine that spreads over several cards cannot; empty: it can, or it does not."""
    wish = wish_for(target)
    cards = _cards(target, wish, seen, environ)
    if not cards or len(cards) >= wish.cards:
        return ""
    return f"asks for {wish.cards} cards, {len(cards)} can be used"


def _cards(
    target: Target, wish: Wish, seen: Machine, environ: Mapping[str, str]
) -> tuple[Gpu, ...]:
    """Empty: the CPU."""
    own = named_cards(target.model)
    if own == [] or not _wants_card(target, wish, environ):
        return ()
    usable = _named(seen.gpus, own) or _named(seen.gpus, visible_cards(environ)) or seen.gpus
    if not usable:
        return ()
    if wish.cards > 1:
        # The engine takes the first ones that it sees.
        return tuple(usable[: wish.cards])
    # Named by the model itself: the engine takes the first, whatever is free there.
    return (usable[0] if own else max(usable, key=lambda gpu: gpu.free_bytes),)


def _named(gpus: Sequence[Gpu], names: Sequence[str] | None) -> tuple[Gpu, ...]:
    """By number or by (the beginning of) the UUID, in the order of `names`."""
    found = []
    for name in names or ():
        is_uuid = name.startswith("GPU-")
        found += [g for g in gpus if (g.uuid.startswith(name) if is_uuid else str(g.index) == name)]
    return tuple(found)


def _wants_card(target: Target, wish: Wish, environ: Mapping[str, str]) -> bool:
    engine = target.upstream.engine
    if engine == "command":
        return bool(named_cards(target.model))
    if engine != "llamacpp":
        return engine_for(target.upstream).uses_gpu
    if wish.gpu_layers is not None:
        return wish.gpu_layers > 0
    # The wheel is built for the CPU; a person's own llama-server offloads by itself if it can.
    has_program = shutil.which("llama-server", path=environ.get("PATH")) is not None
    return has_program and not target.model.python
