"""What was decided about a request, in the words that mitmweb, headers, metrics and JSON share."""

from __future__ import annotations

from typing import Literal

import msgspec

Layer = Literal["rule", "semantic", "default", "pass"]

PASS = "pass"  # noqa: S105 - a target's name, no password
"""Target: leave the request as it is."""
BLOCK = "block"
"""Target: refuse the request with the route's message."""


class Hit(msgspec.Struct, frozen=True):
    """One thing that matched: which route, which entry of its `match`/`when`, as it is written."""

    route: str
    pattern: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a classifier said. Probabilities are calibrated, 0 to 1."""

    route: str | None
    """The most probable route; None: none of these, or no classifier answered."""
    probability: float = 0.0
    threshold: float = 0.0
    """What `probability` had to reach for `route` to be taken."""
    runner_up: str | None = None
    runner_up_probability: float = 0.0
    out_of_scope: float = 0.0
    """How probable it is that the text fits no route at all."""
    reason: str = ""
    """Why there is no route (classifier off, late, broken), or which examples lie nearest."""
    elapsed_us: float = 0.0

    @property
    def is_accepted(self) -> bool:
        """Whether the classifier is sure enough to decide."""
        return self.route is not None and self.probability >= self.threshold


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Where a request goes, and why. Immutable; `msgspec.structs.replace` makes changed copies."""

    route: str | None
    """None: no route, the request passes."""
    target: str
    """`upstream/model`, or `pass`, or `block`."""
    layer: Layer
    reason: str
    task: str = ""
    """`metadata.task`, or what kind of side request of a tool it was recognised as."""
    elapsed_us: float = 0.0
    fallback: tuple[str, ...] = ()
    """Further targets, tried in order before any content has gone to the client."""
    skipped: tuple[str, ...] = ()
    """Routes that matched and could not serve, each with its obstacle: `route: obstacle`."""
    adjustments: tuple[str, ...] = ()
    """Named changes to the body besides `model`, filled in when the request is rewritten."""
    message: str = ""
    """For `block`: what the client is told. Without a route: it named one that is not there."""
    verdict: Verdict | None = None
    wants_classifier: bool = False
    """No rule but a trailing catch-all (or none) matched: the semantic layer may still speak."""
    is_observed: bool = False
    """Observe mode: shown and logged, the request itself is not changed."""
    is_remembered: bool = False
    """An earlier request of the same turn decided; this one follows."""
    via_sidecar: bool = False
    """The target is a local engine, or something only the gateway can do (fallback) is needed."""
