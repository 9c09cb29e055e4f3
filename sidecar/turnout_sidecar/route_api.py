"""`POST /route`, `GET /healthz`, `/metrics` and `/v1/models`: what the sidecar says about itself.

`/route` makes the whole decision for a text, a messages list or a body and sends nothing anywhere.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from aiohttp import web

from turnout_rules.capabilities import endpoints_served
from turnout_rules.questions import (
    BadQuestion,
    asked,
    read_question,
    semantic_answer,
    whole_answer,
)
from turnout_sidecar.backend_api import backend_rows
from turnout_sidecar.gateway import plain_error
from turnout_sidecar.intake import Refusal, read_body
from turnout_sidecar.live_rules import Snapshot
from turnout_sidecar.service import Service


class RouteApi:
    """Handlers around one `Service`."""

    def __init__(self, service: Service) -> None:
        """Stateless but for the service."""
        self._service = service

    async def route(self, http: web.Request) -> web.StreamResponse:
        """`POST /route`, also where a tool writes it `/v1/route` or `/route/`."""
        if http.method != "POST":
            raise web.HTTPMethodNotAllowed(http.method, ["POST"])
        snapshot, decider = self._service.live.current, self._service.decider
        table = snapshot.table
        try:
            body = await read_body(http, snapshot.settings.proxy.max_body_bytes)
            question = read_question(body)
            request = asked(question, snapshot.reader, http.remote or "")
        except Refusal as refused:
            failure = refused.failure
            return plain_error(failure.status, failure.code, failure.message)
        except BadQuestion as error:
            return plain_error(400, error.code, str(error))
        if question.only == "semantic":
            attachments = question.attachments or request.attachments
            verdict = await decider.classify(request.text, attachments, snapshot)
            return _json_body(semantic_answer(verdict, table))
        decision = await decider.decide(request, snapshot, source="route_api")
        return _json_body(whole_answer(decision, request, table))

    async def healthz(self, http: web.Request) -> web.StreamResponse:
        """200 while it serves, also `degraded` under older rules or without its classifier.

        Those are no reason to restart it: a broken folder would keep it from coming back. 503 is
        for a sidecar that is going away.
        """
        service = self._service
        current = service.live.current
        classifier, is_missed = _classifier_row(service)
        rules = {
            "version": current.table.version,
            "routes": len(current.table.routes),
            "warnings": len(current.rules.warnings),
            "problem": service.live.problem,
        }
        is_well = not service.live.problem and not is_missed
        row = {
            "status": "stopping" if service.is_closing else "ok" if is_well else "degraded",
            "table": rules,
            "classifier": classifier,
            "backends": backend_rows(service.backends),
            "resting": {
                name: round(left_s, 1)
                for name, left_s in service.dispatcher.rests(service.now()).items()
            },
            "batches": service.batches_state(),
        }
        return _json(row, status=503 if service.is_closing else 200)

    async def metrics(self, http: web.Request) -> web.StreamResponse:
        """The Prometheus text exposition."""
        body = self._service.render_metrics()
        return web.Response(body=body, headers={"content-type": "text/plain; version=0.0.4"})

    async def models(self, http: web.Request) -> web.StreamResponse:
        """`GET /v1/models`, in a shape both OpenAI's and Anthropic's clients read."""
        rows = _models(self._service.live.current)
        ids = [row["id"] for row in rows]
        edges = {"first_id": ids[0], "last_id": ids[-1], "has_more": False}
        return _json({"object": "list", "data": rows, **edges})

    async def model(self, http: web.Request) -> web.StreamResponse:
        """`GET /v1/models/{id}`."""
        wanted = http.match_info["id"]
        for row in _models(self._service.live.current):
            if row["id"] == wanted:
                return _json(row)
        return plain_error(404, "model_not_found", f"no model {wanted[:200]!r} here")


def _classifier_row(service: Service) -> tuple[dict[str, Any], bool]:
    """What `/healthz` says of the classifier, and whether routes wait for it in vain."""
    problem = service.decider.classifier_problem
    current = service.live.current
    row: dict[str, Any] = {"state": "off", "reason": problem}
    if service.decider.classifier is not None:
        row = {"state": "ready", **service.decider.classifier.describe()}
        if problem:
            row["reason"] = problem
    elif not service.classifier.settled.is_set():
        return {**row, "state": "starting"}, False
    is_wanted = bool(current.table.semantic_routes) and current.settings.classifier.kind != "off"
    return row, is_wanted and bool(problem)


def _models(snapshot: Snapshot) -> list[dict[str, Any]]:
    """`turnout/auto`, the routes, and every named target."""
    table = snapshot.table
    names = ["turnout/auto", *(f"turnout/{route.name}" for route in table.routes)]
    rows = [_model_row(name, "turnout") for name in names]
    for upstream in table.upstreams.values():
        for model in upstream.models:
            row = _model_row(f"{upstream.name}/{model}", upstream.name)
            endpoints = endpoints_served(table.resolve(row["id"]))
            rows.append(row if endpoints is None else row | {"endpoints": sorted(endpoints)})
    return rows


def _model_row(name: str, owner: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": owner,
        "type": "model",
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
    }


def _json(value: Any, status: int = 200) -> web.Response:
    body = json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "replace")
    return _json_body(body, status)


def _json_body(body: bytes, status: int = 200) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")
