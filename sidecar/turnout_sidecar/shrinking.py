"""Settings of engines compared, and made smaller after an out-of-memory death. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnout_rules.model import Model, Place, Target
from turnout_sidecar.engines.base import context_of

_SMALLEST_CONTEXT = 1_024
_SHRINKABLE = frozenset(
    {"max_num_seqs", "max_model_len", "gpu_memory_utilization", "kv_cache_dtype"}
)


def shrunk(target: Target, wanted: Mapping[str, Any]) -> Target | None:
    """`target` with the settings the diagnosis derived from the log, else half of what hurts.

    None: it is as small as it gets.
    """
    known = {key: value for key, value in wanted.items() if key in _SHRINKABLE}
    smaller = msgspec.structs.replace(target.model, **known) if known else _halved(target.model)
    if smaller is None or smaller == target.model:
        return None
    return Target(target.name, target.upstream, smaller)


def _halved(model: Model) -> Model | None:
    if model.max_num_seqs > 1:
        return msgspec.structs.replace(model, max_num_seqs=max(1, model.max_num_seqs // 2))
    if (context := context_of(model)) > _SMALLEST_CONTEXT:
        return msgspec.structs.replace(model, max_model_len=max(_SMALLEST_CONTEXT, context // 2))
    return None


def changes(before: Model, after: Model) -> str:
    """`max_num_seqs 8 → 4`, for the log."""
    return ", ".join(
        f"{name} {getattr(before, name)} → {getattr(after, name)}"
        for name in sorted(_SHRINKABLE)
        if getattr(before, name) != getattr(after, name)
    )


def is_same_engine(one: Target, other: Target) -> bool:
    """Whether an engine started for `one` serves `other` as well: what differs is ours alone."""
    is_same_kind = one.upstream.engine == other.upstream.engine
    return is_same_kind and _as_started(one.model) == _as_started(other.model)


def moved_to(target: Target, now: Target, before: Target) -> Target:
    """`target`, with what was made smaller between `before` and `now` as small as it was."""
    smaller = {
        name: getattr(now.model, name)
        for name in _SHRINKABLE
        if getattr(now.model, name) != getattr(before.model, name)
    }
    model = msgspec.structs.replace(target.model, **smaller)
    return Target(target.name, target.upstream, model)


def _as_started(model: Model) -> Model:
    """`model` without what no engine is told."""
    return msgspec.structs.replace(
        model,
        place=Place(),
        supports=None,
        price=None,
        adjust={},
        ttl_s=None,
        preload=False,
        pin=False,
        queue=None,
        start_timeout_s=None,
    )
