"""The semantic layer: classifiers behind one interface, chosen by the settings.

`build_classifier` imports only what the chosen kind needs, so a sidecar without a classifier loads
neither numpy nor a model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from turnout_rules.settings import Settings
from turnout_sidecar.classifiers.base import Classifier, ClassifierError

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
__all__ = ["Classifier", "ClassifierError", "build_classifier"]


def build_classifier(settings: Settings, *, socket: str = "") -> Classifier:
    """The classifier that `settings` name. May block for a second; raises `ClassifierError`.

    `socket` is that of the sidecar through which a chat model among our own targets is asked.
    """
    chosen = settings.classifier
    if chosen.kind == "embedded":
        with _one_blas_thread():
            from turnout_sidecar.classifiers.embedded import build_embedded

        return build_embedded(chosen)
    if chosen.kind == "systemone":
        from turnout_sidecar.classifiers.systemone import SystemOneClassifier

        return SystemOneClassifier(chosen)
    if chosen.kind == "chat":
        from turnout_sidecar.classifiers.chat import ChatClassifier

        return ChatClassifier(settings, socket)
    from turnout_sidecar.classifiers.off import OffClassifier

    return OffClassifier()


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """For an import of numpy: its BLAS, which reads this once, must not spin on engines' cores.

    The variable is put back, for engines inherit the environment.
    """
    before = os.environ.get(BLAS_THREADS)
    os.environ[BLAS_THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[BLAS_THREADS]
        else:
            os.environ[BLAS_THREADS] = before
