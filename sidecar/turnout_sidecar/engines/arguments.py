"""Reading a person's own engine arguments (`args:`): they overrule ours, so plans must know."""

from __future__ import annotations

from collections.abc import Sequence

from turnout_rules.model import Model

_TENSOR_PARALLEL = ("--tensor-parallel-size", "-tp")
_PIPELINE_PARALLEL = ("--pipeline-parallel-size", "-pp")


def value_of(args: Sequence[str], *names: str) -> str:
    """The value of the last of the flags `names`, written `--flag value` or `--flag=value`."""
    found = ""
    for position, argument in enumerate(args):
        flag, is_joined, value = argument.partition("=")
        if flag not in names:
            continue
        if is_joined:
            found = value
        elif position + 1 < len(args):
            found = args[position + 1]
    return found


def whole_of(args: Sequence[str], *names: str) -> int | None:
    """`value_of` as a whole number of at least 0; None: absent, or no such number."""
    value = value_of(args, *names)
    return int(value) if value.isdecimal() and len(value) < 10 else None


def has_flag(args: Sequence[str], *names: str) -> bool:
    """Whether one of the flags `names`, which take no value, is among them."""
    return not set(names).isdisjoint(args)


def share_of(args: Sequence[str], *names: str) -> float | None:
    """`value_of` as a share between 0 and 1; None: absent, or no such number."""
    try:
        share = float(value_of(args, *names))
    except ValueError:
        return None
    return share if 0 < share <= 1 else None


def parallel_cards(model: Model) -> tuple[int, int]:
    """(cards that share each layer, groups of cards that share the layers): vLLM's TP and PP."""
    tensor = whole_of(model.args, *_TENSOR_PARALLEL) or 1
    pipeline = whole_of(model.args, *_PIPELINE_PARALLEL) or 1
    return tensor, pipeline


def card_env(model: Model, device: str) -> dict[str, str]:
    """So that an engine sees the card it was planned on, by NVML's number, and no other.

    Several cards are left to the engine: it takes the first ones. `env:` overrules all of it.
    """
    if not device.startswith("gpu"):
        return {}
    # CUDA's own order is the fastest first; NVML counts along the bus.
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    tensor, pipeline = parallel_cards(model)
    if tensor * pipeline > 1:
        return order
    return order | {"CUDA_VISIBLE_DEVICES": device.removeprefix("gpu")}
