"""Bytes to `Request`: decode, check, find the model and the person's words; or say why not.

Everything that can be wrong with a body raises `Unreadable`, and nothing else is ever raised. Costs
one pass over the body; what rules may ask for later is computed by the request itself.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping

import msgspec

from turnout_rules.decoding import decode_body
from turnout_rules.endpoints import FORMS, Endpoint, classify
from turnout_rules.forms import MEDIA_TYPE, Form, read_form
from turnout_rules.humantext import cap, read_human_text
from turnout_rules.request import Request
from turnout_rules.settings import Reading
from turnout_rules.splicing import Fields, locate
from turnout_rules.unreadable import Unreadable
from turnout_rules.wrappers import Wrappers

__all__ = ["Reader", "Unreadable"]

_UTF8_PIECE = 64 * 1024
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_string = msgspec.json.Decoder(str).decode


class _Metadata(msgspec.Struct):
    task: str = ""


_decode_metadata = msgspec.json.Decoder(_Metadata).decode


class Reader:
    """Reads requests under the limits and with the wrappers of `reading`."""

    def __init__(self, reading: Reading) -> None:
        """Compile the wrapper list once."""
        self.reading = reading
        self._wrappers = Wrappers(reading.wrappers_cut, reading.wrappers_open)

    def read(
        self,
        *,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        host: str = "",
        origin: str = "",
        client: str = "",
    ) -> Request:
        """The request, or `Unreadable`. Header names are lower-case; `path` may have a query.

        `host` is what scripts see; only with an `origin` (scheme, host and port) does the query go
        on to it.
        """
        endpoint = classify(method, path)
        if endpoint is None:
            raise Unreadable("not an endpoint that is routed")
        encoding = headers.get("content-encoding", "")
        body = decode_body(body, encoding, self.reading.max_decoded_bytes)
        kind = headers.get("content-type", "")
        is_form = endpoint.name in FORMS and kind.lower().startswith(MEDIA_TYPE)
        form = read_form(body, kind) if is_form else None
        fields = form.fields(body) if form else _read_fields(body)
        try:
            return self._request(
                endpoint, path, headers, body, encoding, fields, host, origin, client, form
            )
        except msgspec.DecodeError as error:
            raise Unreadable("body holds a value of a wrong type") from error
        except (RecursionError, ValueError, OverflowError) as error:
            raise Unreadable("body holds a value that cannot be read") from error

    def _request(
        self,
        endpoint: Endpoint,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        encoding: str,
        fields: Fields,
        host: str,
        origin: str,
        client: str,
        form: Form | None,
    ) -> Request:
        spans = locate(body, fields) if form is None else []
        human = read_human_text(endpoint.name, fields, self._wrappers)
        return Request(
            endpoint=endpoint.name,
            suffix=endpoint.suffix,
            path=path,
            host=host,
            origin=origin,
            headers=headers,
            client=client,
            body=body,
            content_encoding=encoding,
            fields=fields,
            spans=spans,
            form=form,
            model=_read_model(fields, endpoint.path_model),
            stream=_read_stream(fields),
            task=_read_task(fields),
            side_task=human.side_task,
            text=cap(human.text, self.reading.max_text_chars),
            reading=self.reading,
            earlier=human.earlier,
            wrappers=self._wrappers,
        )


def _read_fields(body: bytes) -> Fields:
    if not body:
        raise Unreadable("body is empty")
    try:
        _check_utf8(body)
        return _decode_fields(body)
    except UnicodeDecodeError as error:
        raise Unreadable("body is not UTF-8") from error
    except msgspec.ValidationError as error:
        raise Unreadable("body is not a JSON object") from error
    except RecursionError as error:
        raise Unreadable("body is nested too deeply") from error
    except msgspec.DecodeError as error:
        raise Unreadable(why_not_json(body, str(error))) from error


def _check_utf8(body: bytes) -> None:
    """Decoders skip over strings that are not asked for, so bad bytes in them would go on."""
    if body.isascii():
        return
    if len(body) <= _UTF8_PIECE:
        body.decode()
        return
    # Piecewise: a whole copy as text may take four times the body's memory.
    decoder = _Utf8Decoder()
    view = memoryview(body)
    for at in range(0, len(body), _UTF8_PIECE):
        decoder.decode(view[at : at + _UTF8_PIECE])
    decoder.decode(b"", final=True)


def why_not_json(body: bytes, message: str) -> str:
    """What is wrong with a body that msgspec refuses with `message`, in a person's words."""
    if body.startswith(b"\xef\xbb\xbf"):
        return "body begins with a byte order mark"
    is_half = "truncated" in message and b"\\u" in body and body.rstrip().endswith((b"}", b"]"))
    if is_half or "surrogate" in message or "hex escape" in message:
        return "body holds half a surrogate pair"
    if body.strip(b" \t\r\n")[:1] not in (b"{", b"["):
        return "body is not JSON"
    return "body is broken JSON"


def _read_model(fields: Fields, path_model: str) -> str:
    raw = fields.get("model")
    if raw is None:
        if path_model:
            return path_model
        raise Unreadable("no `model` in the body")
    try:
        model = _decode_string(raw)
    except msgspec.ValidationError as error:
        raise Unreadable("`model` is not text") from error
    if not model:
        raise Unreadable("`model` is empty")
    return model


def _read_stream(fields: Fields) -> bool:
    raw = fields.get("stream")
    if raw is None:
        return False
    value = bytes(raw)
    if value not in (b"true", b"false", b"null"):
        raise Unreadable("`stream` is neither true nor false")
    return value == b"true"


def _read_task(fields: Fields) -> str:
    raw = fields.get("metadata")
    if raw is None:
        return ""
    try:
        return _decode_metadata(raw).task
    except msgspec.ValidationError:
        return ""  # metadata is the client's own; only a text `task` is ours to read
