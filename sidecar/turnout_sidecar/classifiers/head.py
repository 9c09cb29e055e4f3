"""A trained head at work: a text's vector and features in, a verdict out. Pure and thread-safe.

It is never changed; a new table brings a new head.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnout_rules.decision import Verdict
from turnout_sidecar.classifiers.encoder import Reading
from turnout_sidecar.classifiers.familiarity import WEIGHT, familiarity
from turnout_sidecar.classifiers.heads import Fitted, bell, blend
from turnout_sidecar.classifiers.lexical import Pieces, Vocabulary, dots, hashed, script

Floats = npt.NDArray[np.float32]
MIN_SCRIPT_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Near:
    """An example that lies near a text."""

    route: str | None
    text: str
    similarity: float


class Head:
    """Everything needed to judge a text under one table."""

    def __init__(
        self,
        *,
        routes: tuple[str, ...],
        texts: tuple[str, ...],
        labels: npt.NDArray[np.int64],
        is_name: npt.NDArray[np.bool_],
        vectors: Floats,
        vocabulary: Vocabulary,
        starts: npt.NDArray[np.int64],
        owners: npt.NDArray[np.int32],
        values: Floats,
        full: Fitted,
        semantic: Fitted,
        seen: Pieces,
        max_chars: int,
        digest: str,
    ) -> None:
        """As `store.load` reads it."""
        self.routes = routes
        self.texts = texts
        self.labels = labels
        self.vectors = vectors
        self.full = full
        self.semantic = semantic
        self.seen = seen
        self.max_chars = max_chars
        self.digest = digest
        self._vocabulary = vocabulary
        self._weights = {
            True: np.ascontiguousarray(full.coefficients.T),
            False: np.ascontiguousarray(semantic.coefficients.T),
        }
        self._starts, self._owners, self._values = starts, owners, values
        # Names stand last; they are never shown as the nearest example.
        self.examples = int((~is_name).sum())
        self._is_routes = labels[: self.examples] >= 0
        scripts = [script(t) for t, named in zip(texts, is_name, strict=True) if not named]
        self._scripts = {
            s for s in set(scripts) if scripts.count(s) >= MIN_SCRIPT_SHARE * len(scripts)
        }

    @property
    def threshold(self) -> float:
        """The threshold derived from the examples."""
        return self.full.calibration.threshold

    def kernel(self, text: str, reading: Reading) -> tuple[Fitted, Floats]:
        """The regression that suits `text`, and how like each example the text is."""
        fitted = self.full if script(text) in self._scripts else self.semantic
        row = bell(self.vectors @ reading.vector, fitted.shape.width)
        if fitted.shape.lexical:
            row = blend(row, self._lexical(text, reading), fitted.shape.lexical)
        return fitted, row

    def judge(
        self, text: str, reading: Reading, *, threshold: float | None, own: dict[str, float]
    ) -> Verdict:
        """The verdict; `own` (routes') thresholds go before `threshold`, it before the derived."""
        if not self.routes or not self.examples:
            return Verdict(
                route=None, out_of_scope=1.0, reason="no route has examples or a description"
            )
        fitted, row = self.kernel(text, reading)
        weights = self._weights[fitted is self.full]
        scores = (weights @ row).astype(np.float64)
        examples = row[: self.examples]
        near = examples[self._is_routes].max(initial=0.0)
        fit = np.asarray(scores.max() + near, np.float64)
        if fitted is self.full:
            fit += WEIGHT * familiarity(reading.pieces, self.seen)
        belongs = float(fitted.calibration.belongs(fit))
        shares = fitted.calibration.shares(scores[None, :])[0]
        order = np.argsort(-shares)
        top = int(order[0])
        second = int(order[1]) if len(order) > 1 else top
        name = self.routes[top]
        general = fitted.calibration.threshold if threshold is None else threshold
        return Verdict(
            route=name,
            probability=round(belongs * float(shares[top]), 6),
            threshold=own.get(name, general),
            runner_up=None if second == top else self.routes[second],
            runner_up_probability=(
                0.0 if second == top else round(belongs * float(shares[second]), 6)
            ),
            out_of_scope=round(1.0 - belongs, 6),
            reason=self._reason(examples),
        )

    def nearest(self, text: str, reading: Reading, count: int = 5) -> list[Near]:
        """The examples most like `text`, nearest first."""
        _, row = self.kernel(text, reading)
        order = np.argsort(-row[: self.examples])[:count]
        return [self._near(int(i), float(row[i])) for i in order]

    def _reason(self, row: Floats) -> str:
        near = self._near(int(row.argmax()), float(row.max()))
        shown = near.text if len(near.text) <= 60 else near.text[:59] + "…"
        return f"nearest example “{shown}” ({near.route or 'default route'})"

    def _near(self, index: int, similarity: float) -> Near:
        label = int(self.labels[index])
        route = self.routes[label] if label >= 0 else None
        return Near(route=route, text=self.texts[index], similarity=round(similarity, 4))

    def _lexical(self, text: str, reading: Reading) -> Floats:
        """The inner product of the text's lexical vector with each example's."""
        mine, weights = self._vocabulary.place(hashed(text, self.max_chars, reading.pieces))
        postings = (self._starts, self._owners, self._values)
        return dots(mine, weights, postings, len(self.texts))
