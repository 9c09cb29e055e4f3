"""The values of the batch room: a stored file, a batch, one of its requests. No behaviour but JSON.

The statuses are OpenAI's own words, so that its clients can follow a batch without knowing us.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]
ACTIVE: tuple[Status, ...] = ("validating", "in_progress", "finalizing", "cancelling")
ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
)


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file's row; its content lies in the folder under its id."""

    id: str
    filename: str
    purpose: str
    bytes: int
    created_at: int

    def to_json(self) -> dict[str, Any]:
        """OpenAI's file object."""
        return {"object": "file", "status": "processed", **msgspec.to_builtins(self)}


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch's row."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: Status
    created_at: int
    expires_at: int
    metadata: str = "null"
    errors: str = "null"
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    total: int = 0

    def to_json(self, completed: int, failed: int) -> dict[str, Any]:
        """OpenAI's batch object."""
        row: dict[str, Any] = msgspec.to_builtins(self)
        total = row.pop("total")
        row["metadata"] = msgspec.json.decode(self.metadata)
        row["errors"] = msgspec.json.decode(self.errors)
        counts = {"total": total, "completed": completed, "failed": failed}
        return {"object": "batch", **row, "request_counts": counts}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a batch, not answered yet."""

    batch_id: str
    line: int
    custom_id: str
    endpoint: str
    body: bytes
    expires_at: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended. Without a status it never reached a model, and `code` says why."""

    status: int | None
    body: bytes = b""
    code: str = ""
    message: str = ""

    @property
    def is_success(self) -> bool:
        """Whether it belongs into the output file; else into the error file."""
        return self.status is not None and self.status < 400

    def to_line(self, batch_id: str, line: int, custom_id: str) -> bytes:
        """The line of the output or error file."""
        name = f"batch_req_{batch_id.removeprefix('batch_')}_{line}"
        response: dict[str, Any] | None = None
        error: dict[str, str] | None = None
        if self.status is None:
            error = {"code": self.code, "message": self.message}
        else:
            response = {"status_code": self.status, "request_id": name, "body": _body(self.body)}
        row = {"id": name, "custom_id": custom_id, "response": response, "error": error}
        return msgspec.json.encode(row) + b"\n"


def _body(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return {"error": {"message": body[:2_000].decode("utf-8", "replace")}}
