"""From scores to probabilities that mean what they say, and to the threshold derived from them.

Everything is fitted to scores of examples that were left out (one by one for texts that belong, a
whole route at a time for texts that fit none). Pure numpy; knows no texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
OUTSIDE_SHARE = 0.25
"""How much of the undecided traffic is taken to fit no route, where the data cannot say."""
NEAR_SHARE = 0.5
"""Texts of a left-out route lie nearer than strange ones do: so many of them, the nearest, are
siblings of another route and say nothing about texts that fit none. Chosen on CLINC150: 0.3 suits
tables of 3 to 8 unlike intents, 0.7 its ten domains."""
PRIOR_SLOPE, PRIOR_MIDDLE, PRIOR_WEIGHT = 6.0, 0.8, 6.0
MIN_THRESHOLD, MAX_THRESHOLD = 0.3, 0.8


class Calibration(msgspec.Struct, frozen=True):
    """How scores become probabilities."""

    temperature: float = 0.15
    slope: float = PRIOR_SLOPE
    middle: float = PRIOR_MIDDLE
    threshold: float = 0.5

    def belongs(self, fit: Floats) -> Floats:
        """How probable it is that texts of this fitness fit some route."""
        return sigmoid(self.slope * (fit - self.middle))

    def shares(self, scores: Floats) -> Floats:
        """Row by row, how probable each route is for a text that fits one."""
        return softmax(scores / self.temperature)


USUAL = Calibration(temperature=0.035, slope=11.0, middle=0.4, threshold=0.45)
"""For tables whose routes have one example each, where nothing can be left out and judged. Chosen
on CLINC150 with one example for each of 3 to 120 intents, two in three of them named by what they
mean, and a quarter of texts that fit none."""


def sigmoid(x: Floats) -> Floats:
    """The logistic function, safe at both ends."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)), np.float64)


def softmax(x: Floats) -> Floats:
    """Row-wise."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float64)


def fit_calibration(
    scores: Floats, labels: npt.NDArray[np.int64], fit: Floats, outside: Floats
) -> Calibration:
    """`scores` (left out one by one) with true `labels`; their fitness; that of texts outside.

    The top route of a text outside is not needed: whatever it is, taking it is wrong.
    """
    outside = np.sort(outside)[: int(np.ceil(len(outside) * (1 - NEAR_SHARE)))]
    temperature = _temperature(scores, labels)
    slope, middle = _platt(fit, outside)
    plain = Calibration(temperature=temperature, slope=slope, middle=middle)
    inside = plain.belongs(fit) * plain.shares(scores).max(axis=1)
    is_right = scores.argmax(axis=1) == labels
    if not len(outside):
        return msgspec.structs.replace(plain, threshold=_best_threshold(inside, is_right, None))
    # A text outside looks as divided between routes as the wrongly judged ones do.
    is_known = (~is_right).sum() >= 5
    wrong = plain.shares(scores[~is_right]).max(axis=1) if is_known else np.array([0.7])
    strange = plain.belongs(outside) * float(wrong.mean())
    return msgspec.structs.replace(plain, threshold=_best_threshold(inside, is_right, strange))


def _temperature(scores: Floats, labels: npt.NDArray[np.int64]) -> float:
    rows = np.arange(len(labels))
    best, best_loss = 0.15, np.inf
    for temperature in np.geomspace(0.03, 0.6, 31):
        # Two prior observations keep a perfect little table from certainty.
        shares = softmax(scores / temperature)
        loss = -np.log(shares[rows, labels] + 1e-9).sum() + 2 * abs(np.log(temperature / 0.15))
        if loss < best_loss:
            best, best_loss = float(temperature), float(loss)
    return best


def _platt(inside: Floats, outside: Floats) -> tuple[float, float]:
    """Slope and middle of the logistic curve between both groups, drawn to the prior's."""
    if not len(outside) or not len(inside):
        return PRIOR_SLOPE, PRIOR_MIDDLE
    x = np.concatenate([inside, outside])
    y = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    weight_in = (1 - OUTSIDE_SHARE) * len(x) / len(inside)
    weight_out = OUTSIDE_SHARE * len(x) / len(outside)
    weights = np.where(y == 1, weight_in, weight_out)
    design = np.stack([x, np.ones_like(x)], axis=1)
    prior = np.array([PRIOR_SLOPE, -PRIOR_SLOPE * PRIOR_MIDDLE])
    strength = PRIOR_WEIGHT * np.array([0.05, 0.05])
    beta = prior.copy()
    for _ in range(50):
        p = sigmoid(design @ beta)
        gradient = design.T @ (weights * (p - y)) + strength * (beta - prior)
        curvature = design.T @ (design * (weights * p * (1 - p))[:, None]) + np.diag(strength)
        step = np.linalg.solve(curvature, gradient)
        beta = beta - np.clip(step, -3, 3)
        if np.abs(step).max() < 1e-6:
            break
    slope = float(np.clip(beta[0], 1.0, 40.0))
    return slope, float(-beta[1] / slope)


def _best_threshold(inside: Floats, is_right: Bools, outside: Floats | None) -> float:
    """Where right answers minus wrong ones peak, with texts outside at their usual share."""
    candidates = np.linspace(MIN_THRESHOLD, MAX_THRESHOLD, 51)
    gains = np.zeros(len(candidates))
    worth = np.where(is_right, 1.0, -1.0)
    for i, candidate in enumerate(candidates):
        gain = float((worth * (inside >= candidate)).mean()) if len(inside) else 0.0
        lost = 0.0 if outside is None else float((outside >= candidate).mean())
        gains[i] = (1 - OUTSIDE_SHARE) * gain - OUTSIDE_SHARE * lost
    # A flat top says little: take its middle, so that neither side is a cliff.
    top = candidates[gains >= gains.max() - 0.002]
    return round(float(top.mean()), 3)


def expected_calibration_error(confidence: Sequence[float], is_right: Sequence[bool]) -> float:
    """Mean gap between confidence and accuracy over ten equal-width bins."""
    p, right = np.asarray(confidence, np.float64), np.asarray(is_right, np.float64)
    if not len(p):
        return 0.0
    bins = np.minimum((p * 10).astype(int), 9)
    gaps = [
        (bins == b).mean() * abs(p[bins == b].mean() - right[bins == b].mean())
        for b in range(10)
        if (bins == b).any()
    ]
    return float(sum(gaps))
