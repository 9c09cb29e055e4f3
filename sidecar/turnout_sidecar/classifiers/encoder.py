"""The multilingual sentence encoder: text in, a unit vector and its pieces out, on the CPU.

One thread and no memory arena: it must stay small beside the engines. Blocks while it runs (without
the interpreter lock), so callers give it a thread; it never fetches its model.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from turnout_sidecar.classifiers.base import ClassifierError, cut

Vectors = npt.NDArray[np.float32]
Pieces = npt.NDArray[np.int32]
MEANING = 512
INNER = 320
DIMENSIONS = MEANING + INNER
INNER_WEIGHT = math.sqrt(0.5)
"""A hidden layer beside the sentence vector tells apart what the last layer merges. Its weight was
chosen on CLINC150's validation split: from 0.5 to 1 it makes no difference that can be told."""
PACKAGES = "pip install 'turnout[local]'"
_SCOPE = "StatefulPartitionedCall"
_INSIDE = (
    f"{_SCOPE}/EncoderDNN/DNN/ResidualHidden_1/Relu:0",
    f"{_SCOPE}/text_preprocessor/SentenceTokenizer/SentencepieceTokenizeOp:0",
)
"""Tensors inside the graph: the hidden layer, and the pieces' numbers."""


class Reading(NamedTuple):
    """What the encoder makes of a text."""

    vector: Vectors
    """[832], unit length: the sentence vector and the hidden layer."""
    pieces: Pieces
    """The numbers of its word pieces, in their order; SentencePiece numbers rare ones higher."""


def meaning(vectors: Vectors) -> Vectors:
    """The sentence vectors alone, [n, 512], unit length, out of `Reading.vector`s [n, 832]."""
    return np.asarray(vectors[:, :MEANING] * np.float32(math.sqrt(1 + INNER_WEIGHT**2)), np.float32)


class Encoder:
    """Wraps the ONNX session."""

    def __init__(self, path: Path, *, threads: int = 1, max_chars: int = 500) -> None:
        """Load the model; raises `ClassifierError` when its packages or its file are missing."""
        # Read when the library is loaded; without it, it keeps a device id in the user's cache.
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        try:
            import onnxruntime
            import onnxruntime_extensions
        except ImportError as error:
            raise ClassifierError(f"{error}: the embedded classifier needs {PACKAGES}") from error
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.log_severity_level = 3
        self._max_chars = max_chars
        try:
            self._session: Any = _opened(path, onnxruntime.InferenceSession, options)
        except Exception as error:  # onnxruntime's own exceptions share no public base
            raise ClassifierError(
                f"{path} cannot be loaded ({error}): `turnout models pull --force sentence-encoder`"
            ) from error
        give_back_memory()

    def encode(self, text: str) -> Reading:
        """The vector and the pieces of one text."""
        # Lone surrogates cannot cross into the graph's UTF-8 strings.
        clean = cut(text, self._max_chars).encode("utf-8", "replace").decode() or " "
        said, inner, pieces = self._session.run(None, {"inputs": np.array([clean], dtype=object)})
        inner *= INNER_WEIGHT / (np.linalg.norm(inner) + 1e-9)
        vector = np.concatenate([said[0], inner[0]]) / np.float32(math.sqrt(1 + INNER_WEIGHT**2))
        return Reading(np.asarray(vector, np.float32), pieces.astype(np.int32))

    def encode_all(
        self, texts: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> tuple[Vectors, list[Pieces]]:
        """A row and the pieces of each text.

        One by one: the int8 graph scales its numbers by the largest in a batch, so a text's vector
        would depend on its neighbours.
        """
        out = np.zeros((len(texts), DIMENSIONS), np.float32)
        pieces: list[Pieces] = []
        for row, text in enumerate(texts):
            out[row], mine = self.encode(text)
            pieces.append(mine)
            if progress is not None:
                progress(1)
        return out, pieces


def _opened(path: Path, session: Callable[..., Any], options: Any) -> Any:
    """The model in `path` with more outputs."""
    providers, more = ["CPUExecutionProvider"], _more_outputs(_INSIDE)
    try:
        with tempfile.NamedTemporaryFile(prefix="turnout-", suffix=".onnx") as copy:
            with path.open("rb") as file:
                shutil.copyfileobj(file, copy)
            copy.write(more)
            copy.flush()
            return session(copy.name, options, providers=providers)
    except OSError:
        # No room for a copy. From memory it works, too, but the session keeps these 72 MB.
        return session(path.read_bytes() + more, options, providers=providers)


def give_back_memory() -> None:
    """Return freed memory to the system; glibc would keep the loader's 35 MB."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _more_outputs(names: Sequence[str]) -> bytes:
    """What to append to an ONNX file so that the tensors `names` become outputs, too.

    Protocol Buffers' encoding: messages that follow each other are merged, so a model whose graph
    holds nothing but further outputs adds them (onnx.proto: ModelProto.graph is field 7,
    GraphProto.output 12, ValueInfoProto.name 1).
    """
    return _field(7, b"".join(_field(12, _field(1, name.encode())) for name in names))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content
