"""The head: kernel ridge regression over what a text means and which words it uses.

One kernel row compares a text with every example: a bell curve over the encoder's cosine plus the
inner product of the lexical vectors. Leaving an example or a whole route out has a closed form:
settings and calibration come from left-out scores without training twice. Pure; no files, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from turnout_sidecar.classifiers import familiarity
from turnout_sidecar.classifiers.confidence import USUAL, Calibration, fit_calibration
from turnout_sidecar.classifiers.lexical import Hashes, Pieces, SparseRows, Vocabulary

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Lexical = Callable[[Labels, Labels], Floats]
LARGEST_EXACT = 3_600
"""More examples than this are compared through a sample of themselves,"""
LANDMARKS = 2_400
"""of this size."""
TUNING_SAMPLE = 700
WIDTHS = (0.5, 0.6, 0.8)
LEXICAL_WEIGHTS = (0.3, 0.6, 1.0, 1.7)
RIDGE = 0.1
NAME_WEIGHT, NAME_WEIGHT_IN_ALL = 0.3, 2.4
"""How much a route's name counts beside an example; never more than its share of the second among
the route's examples. Chosen on CLINC150: of 31 intents with one example each 80 % of the validation
texts are ranked right, 89 % with names, 79 % with names that say nothing. From five examples on the
latter are not felt."""
FEWEST_KNOWN = 8
"""With fewer examples that have a sibling, the usual calibration says more than a fitted one."""


class Shape(msgspec.Struct, frozen=True):
    """The head's settings. The defaults suit a handful of examples; more data may move them."""

    width: float = 0.6
    lexical: float = 0.3
    ridge: float = RIDGE


def semantic_kernel(left: Floats, right: Floats, width: float) -> Floats:
    """A bell curve over the cosine of unit vectors."""
    return bell(left @ right.T, width)


def bell(cosine: Floats, width: float) -> Floats:
    """The kernel's value for cosines; works in place."""
    cosine -= np.float32(1.0)
    cosine /= np.float32(width * width)
    np.minimum(cosine, 0.0, out=cosine)
    return np.asarray(np.exp(cosine, out=cosine), np.float32)


def blend(semantic: Floats, lexical: Floats, weight: float) -> Floats:
    """Both kernels together, 1 on identical texts; works in `lexical`'s place."""
    lexical *= np.float32(weight)
    lexical += semantic
    lexical /= np.float32(1 + weight)
    return lexical


def left_out(
    kernel: Floats, targets: Floats, ridge: float | Floats, labels: Labels | None = None
) -> tuple[Floats, Floats, Floats]:
    """(coefficients, scores with each example left out, scores with its whole route left out).

    `ridge` may be one for each example.
    """
    system = kernel.copy()
    system.flat[:: len(kernel) + 1] += np.asarray(ridge, np.float32)
    inverse = np.linalg.inv(system)
    del system
    coefficients = inverse @ targets
    alone = targets - coefficients / np.diag(inverse)[:, None]
    without_route = np.zeros_like(alone)
    if labels is not None:
        for label in range(targets.shape[1]):
            rows = np.flatnonzero(labels == label)
            if len(rows):
                block = inverse[np.ix_(rows, rows)]
                without_route[rows] = targets[rows] - np.linalg.solve(block, coefficients[rows])
                without_route[rows, label] = -1.0
    return coefficients, np.asarray(alone, np.float32), np.asarray(without_route, np.float32)


def one_hot(labels: Labels, count: int) -> Floats:
    """A row of zeros and one 1 for each label; -1 (fits no route) is a row of zeros."""
    out = np.zeros((len(labels), count), np.float32)
    inside = np.flatnonzero(labels >= 0)
    out[inside, labels[inside]] = 1.0
    return out


def choose_shape(
    vectors: Floats, lexical: Floats, labels: Labels, count: int, is_name: Bools
) -> Shape:
    """The settings that left-out examples favour clearly; without clear favour the defaults."""
    is_right: dict[Shape, npt.NDArray[np.float64]] = {}
    targets = one_hot(labels, count)
    inside = (labels >= 0) & ~is_name
    if not inside.any():
        return Shape()
    for width in WIDTHS:
        semantic = semantic_kernel(vectors, vectors, width)
        for weight in LEXICAL_WEIGHTS:
            shape = Shape(width=width, lexical=weight)
            _, alone, _ = left_out(
                blend(semantic, lexical.copy(), weight),
                targets,
                RIDGE / example_weights(labels, is_name),
            )
            is_right[shape] = (alone.argmax(axis=1) == labels)[inside].astype(np.float64)
    best = max(is_right, key=lambda s: is_right[s].mean())

    def is_as_good(shape: Shape) -> bool:
        """Not worse than the best by more than a standard error of their difference."""
        gap = is_right[best] - is_right[shape]
        return bool(gap.mean() <= gap.std() / np.sqrt(max(len(gap), 1)) + 1e-12)

    def distance(shape: Shape) -> float:
        """From the defaults, in steps of the grid."""
        start = Shape()
        return abs(math.log(shape.lexical / start.lexical)) + abs(
            math.log(shape.width / start.width)
        )

    return min((s for s in is_right if is_as_good(s)), key=distance)


def example_weights(labels: Labels, is_name: Bools) -> Floats:
    """How much each example counts: names less, and the less the more examples stand by them."""
    counts = np.bincount(labels[~is_name & (labels >= 0)], minlength=labels.max(initial=0) + 1)
    names = np.minimum(NAME_WEIGHT, NAME_WEIGHT_IN_ALL / np.maximum(counts, 1))
    return np.where(is_name, names[labels], 1.0).astype(np.float32)


def sample(labels: Labels, size: int) -> npt.NDArray[np.int64]:
    """At most `size` rows, each route in proportion, the same ones every time."""
    if len(labels) <= size:
        return np.arange(len(labels))
    order = np.argsort(labels, kind="stable")
    return np.sort(order[np.linspace(0, len(order) - 1, size).astype(np.int64)])


class Fitted(msgspec.Struct, frozen=True):
    """One fitted regression with the calibration of its scores."""

    shape: Shape
    coefficients: Floats
    calibration: Calibration


class Examples(msgspec.Struct, frozen=True):
    """Training data in numbers. `labels` index the routes; -1 marks texts that fit none.

    `is_name` marks those that are only a route's name: they help, and nothing is judged by them.
    """

    vectors: Floats
    features: tuple[tuple[Hashes, Floats], ...]
    pieces: Sequence[Pieces]
    labels: Labels
    is_name: Bools
    count: int


class Trained(msgspec.Struct, frozen=True):
    """What training gives: `rows` says which examples stayed as points of comparison."""

    rows: npt.NDArray[np.int64]
    vocabulary: Vocabulary
    full: Fitted
    semantic: Fitted
    """For texts in a script that the examples hardly use: words cannot help there."""
    seen: Pieces


def train(examples: Examples, *, shape: Shape | None = None) -> Trained:
    """Fit the head; `shape` skips the choice of settings."""
    vocabulary = Vocabulary.of(examples.features)
    placed = [vocabulary.place(f) for f in examples.features]
    labels, count, is_name = examples.labels, examples.count, examples.is_name
    width = len(vocabulary.known)

    def lexical(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> Floats:
        ours = SparseRows([placed[i] for i in left], width)
        return ours.products(SparseRows([placed[i] for i in right], width))

    if shape is None:
        some = sample(labels, TUNING_SAMPLE)
        near = lexical(some, some)
        shape = choose_shape(examples.vectors[some], near, labels[some], count, is_name[some])
    plain = Shape(width=shape.width, lexical=0.0, ridge=shape.ridge)
    rows = sample(labels, len(labels) if len(labels) <= LARGEST_EXACT else LANDMARKS)
    semantic = semantic_kernel(examples.vectors[rows], examples.vectors[rows], shape.width)
    alone, foreign = familiarity.left_out_familiarity(examples.pieces, labels)
    extra = familiarity.WEIGHT * alone[rows], familiarity.WEIGHT * foreign[rows]
    nothing = np.zeros(len(rows), np.float32)
    of_rows = labels[rows], is_name[rows], count
    bare = _fit(semantic, *of_rows, plain, (nothing, nothing))
    both = blend(semantic, lexical(rows, rows), shape.lexical)
    del semantic  # These matrices are what training takes its memory for.
    full = _fit(both, *of_rows, shape, extra)
    del both
    if len(rows) < len(labels):
        full = _refit(examples, rows, lexical, full)
        bare = _refit(examples, rows, lexical, bare)
    seen = familiarity.seen_in(examples.pieces, labels)
    return Trained(rows=rows, vocabulary=vocabulary, full=full, semantic=bare, seen=seen)


def _fit(
    kernel: Floats,
    labels: Labels,
    is_name: Bools,
    count: int,
    shape: Shape,
    extra: tuple[Floats, Floats],
) -> Fitted:
    """`extra`: what is added to the fitness of texts left out alone, and with their route."""
    own = shape.ridge / example_weights(labels, is_name)
    coefficients, alone, without = left_out(kernel, one_hot(labels, count), own, labels)
    inside = np.flatnonzero((labels >= 0) & ~is_name)
    near, foreign = _nearest(kernel, labels, is_name)
    fit = alone.max(axis=1, initial=-np.inf) + near + extra[0]
    has_rival = len(np.unique(labels[inside])) > 1
    outside = without.max(axis=1, initial=-np.inf) + foreign + extra[1]
    strange = outside[inside] if has_rival else np.zeros(0)
    background = np.flatnonzero(labels < 0)
    strange = np.concatenate([strange, fit[background]])
    # An only example that is left out takes its route along: no score of it can be right.
    known = inside[np.bincount(labels[inside], minlength=count)[labels[inside]] > 1]
    calibration = USUAL
    if len(known) >= FEWEST_KNOWN:
        calibration = fit_calibration(
            alone[known].astype(np.float64),
            labels[known],
            fit[known].astype(np.float64),
            strange.astype(np.float64),
        )
    return Fitted(
        shape=shape, coefficients=coefficients.astype(np.float32), calibration=calibration
    )


def _nearest(kernel: Floats, labels: Labels, is_name: Bools) -> tuple[Floats, Floats]:
    """How near each example is to the routes' nearest other one, and to another route's nearest.

    Texts that fit none are no such neighbours: to lie near them speaks against fitting.
    """
    near, foreign = np.zeros(len(kernel), np.float32), np.zeros(len(kernel), np.float32)
    for row, likeness in enumerate(kernel):
        is_other = ~is_name & (labels >= 0)
        is_other[row] = False
        near[row] = likeness[is_other].max(initial=0.0)
        foreign[row] = likeness[is_other & (labels != labels[row])].max(initial=0.0)
    return near, foreign


def _refit(
    examples: Examples, rows: npt.NDArray[np.int64], lexical: Lexical, fit: Fitted
) -> Fitted:
    """Coefficients of the sampled examples fitted to all of them; the calibration stays."""
    shape, labels = fit.shape, examples.labels
    points = examples.vectors[rows]
    weights = example_weights(labels, examples.is_name)
    size = len(rows)
    normal = np.zeros((size, size), np.float32)
    target = np.zeros((size, examples.count), np.float32)
    for start in range(0, len(labels), 1_000):
        part = np.arange(start, min(start + 1_000, len(labels)))
        kernel = semantic_kernel(examples.vectors[part], points, shape.width)
        if shape.lexical:
            kernel = blend(kernel, lexical(part, rows), shape.lexical)
        weighted = (kernel * weights[part, None]).T
        normal += weighted @ kernel
        target += weighted @ one_hot(labels[part], examples.count)
    own = semantic_kernel(points, points, shape.width)
    if shape.lexical:
        own = blend(own, lexical(rows, rows), shape.lexical)
    normal += np.float32(shape.ridge) * own + np.float32(1e-3) * np.eye(size, dtype=np.float32)
    coefficients = np.linalg.solve(normal, target)
    return Fitted(
        shape=shape, coefficients=coefficients.astype(np.float32), calibration=fit.calibration
    )
