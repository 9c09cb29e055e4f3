"""The head's arithmetic and the calibration, without any model."""

from __future__ import annotations

import numpy as np
import pytest

from sidecar.classifier_tables import table_of
from turnout_rules.decision import Verdict
from turnout_sidecar.classifiers import heads
from turnout_sidecar.classifiers.base import cut
from turnout_sidecar.classifiers.cache import VerdictCache
from turnout_sidecar.classifiers.confidence import (
    expected_calibration_error,
    fit_calibration,
)
from turnout_sidecar.classifiers.lexical import SparseRows, Vocabulary, grams, hashed
from turnout_sidecar.classifiers.store import MOST_WITH_NAME, Lesson

NO_PIECES = np.zeros(0, np.int32)


def _points(count: int, routes: int, seed: int = 0) -> tuple[heads.Floats, heads.Labels]:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % routes
    vectors = rng.normal(size=(count, 16)) * 0.3 + np.eye(16)[labels]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), labels


def test_scores_with_an_example_left_out_equal_those_of_training_without_it() -> None:
    vectors, labels = _points(30, 3)
    kernel = heads.semantic_kernel(vectors, vectors, 0.6)
    targets = heads.one_hot(labels, 3)
    _, alone, without = heads.left_out(kernel, targets, 0.1, labels)
    for i in (0, 7, 29):
        rest = np.delete(np.arange(30), i)
        again, _, _ = heads.left_out(kernel[np.ix_(rest, rest)], targets[rest], 0.1)
        np.testing.assert_allclose(kernel[i, rest] @ again, alone[i], atol=2e-4)
    rest = np.flatnonzero(labels != 1)
    again, _, _ = heads.left_out(kernel[np.ix_(rest, rest)], targets[rest], 0.1)
    for i in np.flatnonzero(labels == 1)[:3]:
        expected = (kernel[i, rest] @ again)[[0, 2]]
        np.testing.assert_allclose(expected, without[i][[0, 2]], atol=2e-3)


def test_a_large_table_is_compared_through_a_sample_and_stays_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heads, "LARGEST_EXACT", 100)
    monkeypatch.setattr(heads, "LANDMARKS", 60)
    vectors, labels = _points(400, 4)
    features = tuple(hashed(f"word{label} common", 500, NO_PIECES) for label in labels)
    pieces = [np.array([1, 100 + label, 2], np.int32) for label in labels]
    trained = heads.train(heads.Examples(vectors, features, pieces, labels, labels < 0, 4))
    assert len(trained.rows) == 60
    kernel = heads.semantic_kernel(vectors, vectors[trained.rows], trained.semantic.shape.width)
    assert ((kernel @ trained.semantic.coefficients).argmax(axis=1) == labels).mean() > 0.95


def test_names_count_less_the_more_examples_stand_by_them() -> None:
    labels = np.array([0] + [1] * 16 + [-1, 0, 1])
    is_name = np.arange(len(labels)) >= len(labels) - 2
    weights = heads.example_weights(labels, is_name)
    assert list(weights[:18]) == [1.0] * 18
    assert list(weights[18:]) == pytest.approx([heads.NAME_WEIGHT, 2.4 / 16])


def test_only_routes_with_few_examples_are_taught_by_their_names_too() -> None:
    many = tuple(f"example {i}" for i in range(MOST_WITH_NAME + 1))
    lesson = Lesson.of(table_of({"home-works_2": ("a", "b"), "big": many, "same": ("same",)}), 500)
    assert lesson.names == 1
    assert (lesson.texts[-1], lesson.labels[-1]) == ("home works 2", 0)


def test_sparse_products_equal_dense_ones() -> None:
    texts = ["book a flight", "book a table", "打开灯", "关灯 please", ""]
    features = [hashed(text, 500, NO_PIECES) for text in texts]
    vocabulary = Vocabulary.of(features)
    rows = [vocabulary.place(f) for f in features]
    dense = np.zeros((len(rows), len(vocabulary.known)), np.float32)
    for i, (columns, values) in enumerate(rows):
        dense[i, columns] = values
    sparse = SparseRows(rows, dense.shape[1])
    np.testing.assert_allclose(sparse.products(sparse), dense @ dense.T, atol=1e-5)


def test_words_of_both_scripts_become_features() -> None:
    found = grams("Debug这个函数", 500)
    assert "wdebug" in found
    assert "函数" in found


def test_pieces_are_words_where_none_are_written_apart() -> None:
    pieces = np.array([1, 700, 90, 700, 2], np.int32)
    plain, _ = hashed("打开灯", 500, NO_PIECES)
    hashes, values = hashed("打开灯", 500, pieces)
    assert len(hashes) == len(values) == len(plain) + 2
    english = hashed("turn on the light", 500, pieces)
    np.testing.assert_array_equal(english[0], hashed("turn on the light", 500, NO_PIECES)[0])


@pytest.mark.parametrize("text", ["", " ", "\ud800", "\u200b", "🙂" * 600, "a" * 64_000])
def test_no_text_is_too_strange_for_features(text: str) -> None:
    hashes, values = hashed(text.encode("utf-8", "replace").decode(), 500, NO_PIECES)
    assert len(hashes) == len(values)


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    text = cut("a" * 400 + "middle" + "z" * 400, 500)
    assert len(text) == 501
    assert text.startswith("aaa") and text.endswith("zzz") and "middle" not in text


def test_calibrated_probabilities_fall_where_texts_fit_worse() -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(200) % 4
    scores = np.eye(4)[labels] * 0.6 + rng.normal(size=(200, 4)) * 0.1
    calibration = fit_calibration(
        scores, labels, rng.normal(1.0, 0.1, 200), rng.normal(0.2, 0.1, 100)
    )
    low, high = calibration.belongs(np.array([0.1, 1.2]))
    assert low < 0.1 and high > 0.9
    assert 0.3 <= calibration.threshold <= 0.8


def test_calibration_without_texts_outside_falls_back_to_its_prior() -> None:
    calibration = fit_calibration(np.array([[0.5]]), np.array([0]), np.array([1.0]), np.zeros(0))
    assert 0.3 <= calibration.threshold <= 0.8


def test_calibration_error_is_the_gap_between_said_and_true() -> None:
    assert expected_calibration_error([0.9] * 10, [True] * 9 + [False]) == pytest.approx(0.0)
    assert expected_calibration_error([0.95] * 10, [False] * 10) == pytest.approx(0.95)


def test_the_cache_drops_what_was_unused_longest_and_ignores_width_and_case() -> None:
    cache = VerdictCache(2)
    one, two, three = (cache.key(t, "v1") for t in ("One", "two", "three"))
    assert cache.key(" ＯＮＥ ", "v1") == one
    assert cache.key("One", "v2") != one
    for key in (one, two):
        cache.put(key, Verdict(route="r"))
    assert cache.get(one) is not None
    cache.put(three, Verdict(route="r"))
    assert cache.get(two) is None and cache.get(one) is not None
