"""Routes that a request names itself, in its own fields: model, header, `metadata.task`.

Never by words in a prompt: whoever writes into a prompt (a web page, a file) must not steer.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import msgspec

from turnout_rules.naming import shown

if TYPE_CHECKING:
    from turnout_rules.request import Request

MODEL_PREFIX = "turnout/"
AUTO = "auto"
ROUTE_HEADER = "x-turnout-route"


class Named(msgspec.Struct, frozen=True):
    """What a request names: the route, and by what (`model turnout/code`)."""

    route: str
    by: str


def asks_turnout(request: Request) -> bool:
    """Whether the model is one that only Turnout knows, so that no provider could serve it."""
    return request.model.startswith(MODEL_PREFIX)


def named_route(request: Request, routes: Container[str]) -> Named | None:
    """The route that `request` names, which need not exist; None: it names none.

    The model comes before the header, the header before the task. `turnout/auto` and the header
    `auto` ask for an ordinary decision. A task counts only if a route is called so: clients use
    `metadata.task` for purposes of their own too. What a request was recognised as names nothing.
    """
    model = request.model
    if asks_turnout(request):
        name = model[len(MODEL_PREFIX) :]
        return None if name == AUTO else Named(name, f"model `{shown(model)}`")
    if (header := request.headers.get(ROUTE_HEADER)) is not None:
        name = header.strip().removeprefix(MODEL_PREFIX)
        return (
            None if name in ("", AUTO) else Named(name, f"header `{ROUTE_HEADER}: {shown(name)}`")
        )
    task = request.stated_task
    return Named(task, f"task `{task}`") if task and task in routes else None
