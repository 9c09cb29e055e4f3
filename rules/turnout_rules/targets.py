"""Target names resolved against the upstreams. Remembers what it resolved; touches nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from turnout_rules.decision import BLOCK, PASS
from turnout_rules.model import Model, Target, Upstream

# Open upstreams take any model name, and captures make them up from requests: bound what is kept.
_REMEMBERED = 4_096


class UnknownTarget(Exception):
    """No upstream or no model is called so; the message says which."""


class Targets:
    """Resolves `upstream/model`."""

    __slots__ = ("_known", "upstreams")

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        """Resolve against `upstreams`."""
        self.upstreams = upstreams
        self._known: dict[str, Target] = {}

    def resolve(self, name: str) -> Target:
        """The target called `name`; raises UnknownTarget."""
        target = self._known.get(name)
        if target is None:
            target = self._find(name)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[name] = target
        return target

    def _find(self, name: str) -> Target:
        if name in (PASS, BLOCK):
            raise UnknownTarget(f"`{name}` is no place to send to")
        upstream_name, slash, model_name = name.partition("/")
        upstream = self.upstreams.get(upstream_name)
        if upstream is None or not slash or not model_name:
            raise UnknownTarget(f"no upstream `{upstream_name}` for target `{name}`")
        model = upstream.models.get(model_name)
        if model is None:
            if not upstream.is_open or upstream.is_managed:
                raise UnknownTarget(f"upstream `{upstream_name}` has no model `{model_name}`")
            model = Model(name=model_name)
        return Target(name, upstream, model)
