"""OpenAI's list envelope with `limit`, `after` and `order`."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from turnout_sidecar.gateway import plain_error

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000


def page(http: web.Request, rows: list[dict[str, Any]]) -> web.Response:
    """One page of `rows`, which come the newest first."""
    try:
        limit = max(1, min(int(http.query.get("limit", DEFAULT_LIMIT)), MAX_LIMIT))
    except ValueError:
        return plain_error(400, "bad_query", "limit must be a number")
    if http.query.get("order") == "asc":
        rows = rows[::-1]
    if after := http.query.get("after"):
        ids = [row["id"] for row in rows]
        rows = rows[ids.index(after) + 1 :] if after in ids else []
    shown = rows[:limit]
    return web.json_response(
        {
            "object": "list",
            "data": shown,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
            "has_more": len(rows) > limit,
        }
    )
