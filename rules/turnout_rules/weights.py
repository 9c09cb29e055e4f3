"""Weighted splits without chance: the same conversation gets the same target, in every process."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def order_by_weight(
    targets: Sequence[tuple[str, int]], route: str, conversation: str
) -> tuple[str, ...]:
    """The targets with a weight, the chosen one first.

    Each share is its weight of a hash of route and conversation, so two routes split differently.
    Targets of weight 0 are left out.
    """
    live = [pair for pair in targets if pair[1] > 0]
    if len(live) <= 1:
        return tuple(name for name, _ in live)
    digest = blake2b(f"{route}\0{conversation}".encode("utf-8", "replace"), digest_size=8).digest()
    point = int.from_bytes(digest) * sum(weight for _, weight in live) >> 64
    for name, weight in live:
        if point < weight:
            return (name, *(other for other, _ in live if other != name))
        point -= weight
    raise AssertionError("a share lies within the sum of the weights")
