"""`GET /openapi.json`: the sidecar's own paths, for tools. The model endpoints are their APIs' own.

One table of path, method and summary is all there is; a test holds it against the router.
"""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from turnout_rules.endpoints import SUFFIX_OF

_PASSED = "As the API of that name defines it; the model names a target, turnout/<route> or a wish"
PATHS: dict[tuple[str, str], str] = {
    ("POST", "/route"): "The decision about a text, a messages list or a body; nothing is sent",
    ("GET", "/healthz"): "Table, classifier, engines, resting targets, batches",
    ("GET", "/metrics"): "Prometheus text exposition",
    ("GET", "/openapi.json"): "This description",
    ("GET", "/backends"): "The local engines",
    ("POST", "/backends/{name}/start"): "Start an engine and wait until it is ready",
    ("POST", "/backends/{name}/stop"): "Stop an engine",
    ("GET", "/backends/{name}/logs"): "An engine's output; lines=N, follow=1",
    ("GET", "/v1/models"): "turnout/auto, the routes and the targets",
    ("GET", "/v1/models/{id}"): "One of them",
    ("POST", "/v1/files"): "Upload a file (multipart: file, purpose)",
    ("GET", "/v1/files"): "All files; purpose, limit, after, order",
    ("GET", "/v1/files/{id}"): "One file",
    ("DELETE", "/v1/files/{id}"): "Delete a file",
    ("GET", "/v1/files/{id}/content"): "A file's content",
    ("POST", "/v1/batches"): "Start a batch from an uploaded file",
    ("GET", "/v1/batches"): "All batches; limit, after",
    ("GET", "/v1/batches/{id}"): "One batch",
    ("POST", "/v1/batches/{id}/cancel"): "End a batch early",
    **{("POST", f"/v1{suffix}"): _PASSED for suffix in SUFFIX_OF.values()},
}


def description() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), summary in PATHS.items():
        operation: dict[str, Any] = {"summary": summary, "responses": {"200": {"description": ""}}}
        if names := re.findall(r"\{(\w+)\}", path):
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ]
        if path == "/route":
            operation["requestBody"] = _QUESTION
        paths.setdefault(path, {})[method.lower()] = operation
    info = {"title": "Turnout sidecar", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


async def serve(http: web.Request) -> web.StreamResponse:
    """`GET /openapi.json`."""
    return web.json_response(description())


_QUESTION = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "messages": {"type": "array", "items": {"type": "object"}},
                    "body": {"type": "object"},
                    "path": {"type": "string"},
                    "headers": {"type": "object"},
                    "model": {"type": "string"},
                    "only": {"enum": ["semantic"]},
                    "attachments": {
                        "type": "array",
                        "items": {"enum": ["image", "audio", "file"]},
                    },
                },
                "oneOf": [{"required": [name]} for name in ("text", "messages", "body")],
            }
        }
    },
}
