"""What a model's memory depends on, whichever kind of file told it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that keep the same of a token. Sizes are in elements, of all heads together."""

    layers: int = 1
    keys: int
    values: int = 0
    """0 where keys and values are one vector (MLA, DeepSeek-V2's paper)."""
    window: int = 0
    """Tokens that it looks back on; 0: all."""
    flat_bytes: int = 0
    """Besides, in a type of its own: an indexer's keys."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes are in elements, `parameters` in weights (0: unknown)."""

    layers: int
    """All blocks, of whatever kind."""
    caches: tuple[Cache, ...] = ()
    state_bytes: int = 0
    """Of one request, however long: states of recurrent layers (Mamba, linear attention)."""
    kv_heads: int = 0
    """The most that a layer has."""
    is_latent: bool = False
    hidden_size: int = 0
    row_size: int = 0
    """Activations of one token that live at once, where logits are not counted."""
    vocabulary: int = 0
    max_context: int = 0
    """Tokens; 0: the files do not say."""
    element_bytes: float = 2.0
    """Of the model's own dtype, which is the KV cache's unless a setting names another."""
    embedding_parameters: int = 0
    linear_parameters: int = 0
    weight_bits: float = 16.0
    """Of linear layers as stored, group scales included."""
    family: str = ""
    is_guess: bool = False
    """Whether the family is none whose memory is known here."""

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.embedding_parameters + self.linear_parameters

    @property
    def cached_layers(self) -> int:
        """Layers that keep keys."""
        return sum(cache.layers for cache in self.caches)


def gathered(caches: Iterable[Cache]) -> tuple[Cache, ...]:
    """Single layers, put together where they keep the same, without those that keep nothing."""
    counts = Counter(cache for cache in caches if cache.keys or cache.values or cache.flat_bytes)
    return tuple(msgspec.structs.replace(one, layers=count) for one, count in counts.items())


def whole(values: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """The first of `names` that is a whole number from 0; raises ValueError without a default."""
    for name in names:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
            return value
    if default is None:
        raise ValueError(f"it does not say `{names[0]}`")
    return default
