"""The semantic layer: classifiers behind one interface, chosen by the settings.

`build_classifier` imports only what the chosen kind needs, so a sidecar without a classifier loads
neither numpy nor a model.
"""

from __future__ import annotations

from turnout_rules.settings import Settings
from turnout_sidecar.classifiers.base import Classifier, ClassifierError

__all__ = ["Classifier", "ClassifierError", "build_classifier"]


def build_classifier(settings: Settings) -> Classifier:
    """The classifier that `settings` name. May block for a second; raises `ClassifierError`."""
    chosen = settings.classifier
    if chosen.kind == "embedded":
        from turnout_sidecar.classifiers.embedded import build_embedded

        return build_embedded(chosen)
    if chosen.kind == "systemone":
        from turnout_sidecar.classifiers.systemone import SystemOneClassifier

        return SystemOneClassifier(chosen)
    if chosen.kind == "chat":
        from turnout_sidecar.classifiers.chat import ChatClassifier

        return ChatClassifier(settings)
    from turnout_sidecar.classifiers.off import OffClassifier

    return OffClassifier()
