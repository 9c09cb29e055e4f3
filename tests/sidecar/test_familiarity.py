"""How much of a text the examples have seen, and the encoder's tensors it is made from."""

from __future__ import annotations

import errno
import shutil

import numpy as np
import pytest

from sidecar.classifier_tables import fetched_models
from turnout_sidecar import model_store
from turnout_sidecar.classifiers.encoder import DIMENSIONS, MEANING, Encoder, meaning
from turnout_sidecar.classifiers.familiarity import (
    familiarity,
    left_out_familiarity,
    seen_in,
    weigh,
)

__all__ = ["fetched_models"]


def _pieces(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def test_rare_pieces_say_more_and_control_pieces_nothing() -> None:
    weights = weigh(_pieces(1, 2, 6, 900, 90_000))
    assert list(weights[:2]) == [0.0, 0.0]
    assert 0 < weights[2] < weights[3] < weights[4] <= 1.0


def test_familiarity_is_the_weighted_share_that_was_seen() -> None:
    seen = seen_in([_pieces(1, 50, 700, 2), _pieces(1, 9_000, 2)], np.array([0, -1]))
    assert list(seen) == [1, 2, 50, 700]
    assert familiarity(_pieces(1, 50, 700, 2), seen) == pytest.approx(1.0)
    assert familiarity(_pieces(1, 9_000, 2), seen) == 0.0
    half = familiarity(_pieces(700, 9_000), seen)
    weights = weigh(_pieces(700, 9_000))
    assert half == pytest.approx(weights[0] / weights.sum())
    assert familiarity(_pieces(5), _pieces()) == 0.0


def test_left_out_familiarity_equals_that_of_the_other_examples() -> None:
    texts = [_pieces(10, 20), _pieces(20, 30), _pieces(30, 40), _pieces(10, 99)]
    labels = np.array([0, 0, 1, -1])
    alone, foreign = left_out_familiarity(texts, labels)
    for row in range(len(texts)):
        others = [i for i in range(len(texts)) if i != row]
        seen = seen_in([texts[i] for i in others], labels[others])
        assert alone[row] == pytest.approx(familiarity(texts[row], seen), abs=1e-6)
        away = [i for i in range(len(texts)) if labels[i] != labels[row]]
        seen = seen_in([texts[i] for i in away], labels[away])
        assert foreign[row] == pytest.approx(familiarity(texts[row], seen), abs=1e-6)


@pytest.mark.local
@pytest.mark.usefixtures("fetched_models")
def test_the_encoder_tells_its_hidden_layer_and_pieces_for_one_text_as_for_many() -> None:
    path = model_store.path_of("sentence-encoder")
    assert path is not None
    encoder = Encoder(path)
    texts = ["translate this into French", "明天会下雨吗", "", "x" * 400]
    vectors, pieces = encoder.encode_all(texts)
    assert vectors.shape == (4, DIMENSIONS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(meaning(vectors), axis=1), 1.0, atol=1e-4)
    assert meaning(vectors).shape == (4, MEANING)
    for text, vector, mine in zip(texts, vectors, pieces, strict=True):
        alone = encoder.encode(text)
        np.testing.assert_array_equal(alone.vector, vector)
        assert list(alone.pieces) == list(mine)
    assert len(set(pieces[0])) > 4


@pytest.mark.local
@pytest.mark.usefixtures("fetched_models")
def test_without_room_for_a_copy_the_encoder_is_loaded_from_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = model_store.path_of("sentence-encoder")
    assert path is not None
    usual = Encoder(path).encode("will it rain")
    monkeypatch.setattr(shutil, "copyfileobj", full)
    np.testing.assert_array_equal(Encoder(path).encode("will it rain").vector, usual.vector)
