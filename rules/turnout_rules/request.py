"""A request as the rules see it: cheap facts at once, dear ones computed when first asked for.

Immutable to everybody outside this module. It holds the decoded body and where its fields stand,
but never builds objects for what no rule asks about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from turnout_rules import inspection, keys, texts
from turnout_rules.endpoints import COUNT_SUFFIX, SUFFIX_OF
from turnout_rules.humantext import CONVERSATION_FIELD, PROMPT_FIELD, cap
from turnout_rules.model import TextPart
from turnout_rules.settings import Reading
from turnout_rules.splicing import Fields, Span, locate

if TYPE_CHECKING:
    from turnout_rules.forms import Form
    from turnout_rules.humantext import Message
    from turnout_rules.wrappers import Wrappers

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
DEFAULT_READING = Reading()


ATTACHMENTS = frozenset({"image", "audio", "file"})


class Request:
    """One request. `Reader.read` makes them from bytes, `from_text` from a person's words."""

    __slots__ = (
        "_bound",
        "_conversation",
        "_earlier",
        "_field_needs",
        "_findings",
        "_input_tokens",
        "_is_bound_by_offer",
        "_needs",
        "_output_tokens",
        "_texts",
        "_tool_findings",
        "_turn",
        "_wrappers",
        "body",
        "client",
        "content_encoding",
        "endpoint",
        "fields",
        "form",
        "headers",
        "host",
        "model",
        "origin",
        "path",
        "reading",
        "script_reads",
        "side_task",
        "spans",
        "stated_task",
        "stream",
        "suffix",
        "task",
        "text",
    )

    def __init__(
        self,
        *,
        endpoint: str,
        suffix: str,
        path: str,
        host: str,
        headers: Mapping[str, str],
        client: str,
        body: bytes,
        content_encoding: str,
        fields: Fields,
        spans: list[Span],
        model: str,
        stream: bool,
        task: str,
        text: str,
        reading: Reading,
        origin: str = "",
        side_task: str = "",
        form: Form | None = None,
        earlier: Iterator[Message] | None = None,
        wrappers: Wrappers | None = None,
    ) -> None:
        """Keep what was read. `spans` or `form` tells where `fields` stand in `body`.

        `origin`: scheme, host and port of the server addressed, as `origin_of` writes them; empty:
        it is not known, or is Turnout itself.
        `task` is what the client states, `side_task` what its request was recognised as.
        """
        self.endpoint = endpoint
        self.suffix = suffix
        self.path = path
        self.host = host
        self.origin = origin
        self.headers = headers
        self.client = client
        self.body = body
        self.content_encoding = content_encoding
        self.fields = fields
        self.spans = spans
        self.form = form
        self.model = model
        self.stream = stream
        self.stated_task = task
        self.side_task = side_task
        self.task = task or side_task
        self.text = text
        self.reading = reading
        self._earlier = earlier
        self._wrappers = wrappers
        self._findings: inspection.Findings | None = None
        self._tool_findings: inspection.Findings | None = None
        self._needs: frozenset[str] | None = None
        self._field_needs: frozenset[str] | None = None
        self._bound: str | None = None
        self._is_bound_by_offer = False
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None
        self._conversation: str | None = None
        self._turn: str | None = None
        self._texts: dict[str, str] | None = None
        self.script_reads = set[str]()
        """What scripts have looked at to decide about this request, by the names of their view."""

    @classmethod
    def from_text(cls, text: str, *, model: str = "", endpoint: str = "chat") -> Request:
        """A request that consists of a person's words alone."""
        words = text.encode("utf-8", "replace").decode()
        content: object = words
        field = PROMPT_FIELD.get(endpoint)
        if field is None:
            field = CONVERSATION_FIELD[endpoint]
            content = [{"role": "user", "content": words}]
        body = msgspec.json.encode({"model": model, field: content})
        fields = _decode_fields(body)
        return cls(
            endpoint=endpoint,
            suffix=SUFFIX_OF[endpoint],
            path="/v1" + SUFFIX_OF[endpoint],
            host="",
            headers={},
            client="",
            body=body,
            content_encoding="",
            fields=fields,
            spans=locate(body, fields),
            model=model,
            stream=False,
            task="",
            text=cap(words, DEFAULT_READING.max_text_chars),
            reading=DEFAULT_READING,
        )

    def __repr__(self) -> str:
        """Never shows text or headers: requests end up in tracebacks and logs."""
        return f"<Request {self.endpoint} {self.path.partition('?')[0]} {len(self.body)} bytes>"

    def count_tokens_only(self) -> None:
        """From now on stand for the request that counts this one's input tokens."""
        self.suffix = COUNT_SUFFIX[self.endpoint]

    @property
    def findings(self) -> inspection.Findings:
        """What the messages hold besides text."""
        if self._findings is None:
            self._findings = inspection.find_in_messages(self)
        return self._findings

    @property
    def tool_findings(self) -> inspection.Findings:
        """What the tools offered are besides plain functions."""
        if self._tool_findings is None:
            self._tool_findings = inspection.find_in_tools(self)
        return self._tool_findings

    @property
    def needs(self) -> frozenset[str]:
        """Capabilities that a target must have to serve this request as it is."""
        if self._needs is None:
            self._needs = inspection.find_needs(self)
        return self._needs

    @property
    def field_needs(self) -> frozenset[str]:
        """Those of them that fields and declared tools have: not attachments, not calls made."""
        if self._field_needs is None:
            self._field_needs = inspection.find_field_needs(self)
        return self._field_needs

    @property
    def attachments(self) -> tuple[str, ...]:
        """What comes with the text: any of audio, file, image."""
        return tuple(sorted(self.needs & ATTACHMENTS))

    @property
    def bound(self) -> str:
        """Why only the origin can serve this request; empty: it can be moved."""
        if self._bound is None:
            self._bound = inspection.find_bond(self)
            hosted = inspection.find_offer(self)
            if hosted and not self._bound:
                self._bound = f"hosted tools ({hosted})"
                self._is_bound_by_offer = inspection.may_go_without(self)
        return self._bound

    @property
    def is_bound_by_offer(self) -> bool:
        """Whether it is bound by hosted tools alone, which it could do without."""
        return bool(self.bound) and self._is_bound_by_offer

    @property
    def input_tokens(self) -> int:
        """An estimate that rather errs high: bytes / 3.5 without base64 data."""
        if self._input_tokens is None:
            self._input_tokens = inspection.estimate_input_tokens(self)
        return self._input_tokens

    @property
    def output_tokens(self) -> int:
        """The answer's limit as the request states it; 0: it states none."""
        if self._output_tokens is None:
            self._output_tokens = inspection.read_output_tokens(self)
        return self._output_tokens

    @property
    def conversation(self) -> str:
        """A key that all requests of one conversation share, the same in every process."""
        if self._conversation is None:
            self._conversation = keys.conversation_key(self, self._wrappers)
        return self._conversation

    @property
    def turn(self) -> str:
        """A key of the human turn: tool-loop requests and retries share it; empty: no words."""
        if self._turn is None:
            self._turn = keys.turn_key(self, self._earlier)
            self._earlier = None
        return self._turn

    def text_on(self, part: TextPart) -> str:
        """The text that `on:` names, raw and capped: `human`, `system`, `tools` or `all`."""
        if part == "human":
            return self.text
        if self._texts is None:
            self._texts = texts.other_texts(self)
        return self._texts[part]
