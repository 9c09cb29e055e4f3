"""How much of a text, by weight of its word pieces, the examples have seen. Pure.

A text that fits no route tends to speak of things that no example mentions. Pieces are numbered by
falling frequency (SentencePiece), so a piece's number says how much it tells, in any language.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from turnout_sidecar.classifiers.lexical import CONTROL_PIECES, Pieces

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
VOCABULARY = 128_010
STEEPNESS = 3
"""Chosen on CLINC150's validation split, as is `WEIGHT`."""
WEIGHT = 0.15
"""What full familiarity adds to a text's fitness."""


def weigh(pieces: Pieces) -> Floats:
    """What each piece tells, 0 to 1: ln(rank) to the third power, control pieces nothing."""
    ranks = np.log(pieces.astype(np.float32) + 2) / np.float32(np.log(VOCABULARY))
    return np.asarray(np.where(pieces < CONTROL_PIECES, 0.0, ranks**STEEPNESS), np.float32)


def familiarity(pieces: Pieces, seen: Pieces) -> float:
    """The weighted share of `pieces` that are in `seen` (sorted), 0 to 1."""
    if not len(seen):
        return 0.0
    at = np.minimum(np.searchsorted(seen, pieces), len(seen) - 1)
    return _share(weigh(pieces), seen[at] == pieces)


def seen_in(texts: Sequence[Pieces], labels: Labels) -> Pieces:
    """The distinct pieces of the texts that fit a route, sorted."""
    inside = [p for p, label in zip(texts, labels, strict=True) if label >= 0]
    return np.unique(np.concatenate([*inside, np.zeros(0, np.int32)])).astype(np.int32)


def left_out_familiarity(texts: Sequence[Pieces], labels: Labels) -> tuple[Floats, Floats]:
    """(each text's among the other examples, each text's among the other routes' examples)."""
    owners = [np.unique(p) for p in texts]
    total = np.zeros(VOCABULARY, np.int32)
    for mine, label in zip(owners, labels, strict=True):
        total[mine] += label >= 0
    alone = np.zeros(len(texts), np.float32)
    foreign = np.zeros(len(texts), np.float32)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label).tolist()
        route = np.zeros(VOCABULARY, np.int32)
        if label >= 0:
            for row in rows:
                route[owners[row]] += 1
        for row in rows:
            pieces, weights = texts[row], weigh(texts[row])
            alone[row] = _share(weights, total[pieces] > int(label >= 0))
            foreign[row] = _share(weights, total[pieces] > route[pieces])
    return alone, foreign


def _share(weights: Floats, is_seen: npt.NDArray[np.bool_]) -> float:
    return float(weights[is_seen].sum() / (weights.sum() + 1e-9))
