"""The multilingual sentence encoder: text in, a unit vector of 512 numbers out, on the CPU.

One thread and no memory arena: it must stay small beside the engines. Blocks while it runs (without
the interpreter lock), so callers give it a thread; it never fetches its model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnout_sidecar.classifiers.base import ClassifierError, cut

Vectors = npt.NDArray[np.float32]
DIMENSIONS = 512
BATCH = 8
PACKAGES = "pip install 'turnout[local]'"


class Encoder:
    """Wraps the ONNX session."""

    def __init__(self, path: Path, *, threads: int = 1, max_chars: int = 500) -> None:
        """Load the model; raises `ClassifierError` when its packages or its file are missing."""
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
            self._session: Any = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's own exceptions share no public base
            raise ClassifierError(
                f"{path} cannot be loaded ({error}): `turnout models pull --force sentence-encoder`"
            ) from error

    def encode(self, text: str) -> Vectors:
        """The vector of one text."""
        return np.asarray(self._run([text])[0], np.float32)

    def encode_all(
        self, texts: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> Vectors:
        """A row a text. Texts of like length go together, so that padding costs little."""
        out = np.zeros((len(texts), DIMENSIONS), np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            out[chosen] = self._run([texts[i] for i in chosen])
            if progress is not None:
                progress(len(chosen))
        return out

    def _run(self, texts: list[str]) -> Vectors:
        # Lone surrogates cannot cross into the graph's UTF-8 strings.
        clean = [
            cut(text, self._max_chars).encode("utf-8", "replace").decode() or " " for text in texts
        ]
        vectors: Vectors = self._session.run(None, {"inputs": np.array(clean, dtype=object)})[0]
        return vectors
