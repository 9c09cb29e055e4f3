"""`POST /route`: what may be asked, as which request it is decided, and how the answer is worded.

Both planes answer it alike. Nothing is decided and nothing is sent here.
"""

from __future__ import annotations

import json
from typing import Any, Literal
from urllib.parse import unquote

import msgspec

from turnout_rules.decision import Decision, Verdict
from turnout_rules.reading import Reader, Unreadable, why_not_json
from turnout_rules.request import Request
from turnout_rules.table import Table

# The second is what becomes of it behind a base URL that ends in `/v1`.
_PATHS = frozenset({"route", "v1/route"})


class Question(msgspec.Struct, frozen=True):
    """The body of `POST /route`: one of `text`, `messages`, `body`."""

    text: str | None = None
    messages: list[Any] | None = None
    body: msgspec.Raw = msgspec.Raw()
    path: str = ""
    headers: dict[str, str] = {}
    model: str = "turnout/auto"
    only: Literal["", "semantic"] = ""
    attachments: list[Literal["image", "audio", "file"]] = []
    """What came with `text`, for a caller that sends no body."""


class BadQuestion(ValueError):
    """It cannot be answered; `code` is a stable snake_case name for the error's body."""

    def __init__(self, code: str, message: str) -> None:
        """`message` says what would be right."""
        super().__init__(message)
        self.code = code


def is_question(path: str) -> bool:
    """Whether a request for `path` is a question, however it is spelt: `/Route/`, `//route?a=b`.

    Generous, because what is not recognised is led on to the provider with the text in it.
    """
    return unquote(path.partition("?")[0]).strip("/").lower() in _PATHS


def read_question(body: bytes) -> Question:
    """The question in a body; raises `BadQuestion`."""
    try:
        question = msgspec.json.decode(body, type=Question)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        is_json = isinstance(error, msgspec.ValidationError)
        why = str(error) if is_json else why_not_json(body, str(error))
        raise BadQuestion("bad_question", f'send {{"text": …}}: {why}') from None
    given = [question.text is not None, question.messages is not None, bool(bytes(question.body))]
    if sum(given) != 1:
        why = "exactly one of text, messages and body is needed"
        raise BadQuestion("bad_question", f'send {{"text": …}}: {why}')
    return question


def asked(question: Question, reader: Reader, client: str) -> Request:
    """The request that a question stands for; `client` is its address. Raises `BadQuestion`."""
    if question.text is not None:
        return Request.from_text(question.text, model=question.model)
    body = bytes(question.body)
    if question.messages is not None:
        body = msgspec.json.encode({"model": question.model, "messages": question.messages})
    headers = {name.lower(): value for name, value in question.headers.items()}
    try:
        return reader.read(
            method="POST",
            path=question.path or "/v1/chat/completions",
            headers={**headers, "content-type": "application/json"},
            body=body,
            client=client,
        )
    except Unreadable as error:
        raise BadQuestion("unreadable_request", f"the body cannot be read: {error}") from None


def whole_answer(decision: Decision, request: Request, table: Table) -> bytes:
    """The decision with everything that hit."""
    hits = table.explain(request).hits
    return _json({**_plain(decision), "hits": msgspec.to_builtins(hits), "table": table.version})


def semantic_answer(verdict: Verdict, table: Table) -> bytes:
    """The classifier's word alone; `route` only where it is sure of it."""
    route = verdict.route if verdict.is_accepted else None
    return _json({"route": route, "verdict": _plain(verdict), "table": table.version})


def _plain(value: Decision | Verdict) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(value)
    return row


def _json(row: dict[str, Any]) -> bytes:
    # Half a surrogate pair in a client's text is no UTF-8.
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")
