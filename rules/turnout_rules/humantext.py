"""What the person wrote, out of each API's body, and the other texts a rule may ask for.

Messages are taken from the end, without building the long middle: the walk stops at the last
message that holds words of the person. It never looks at system prompts unless `text_on` is asked
to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from turnout_rules.side_requests import recognise
from turnout_rules.side_requests import words_in as words_in_side_request
from turnout_rules.side_table import SIDE_ITEMS
from turnout_rules.splicing import Fields
from turnout_rules.unreadable import Unreadable
from turnout_rules.wrappers import Wrappers, join_parts

_NOTHING = msgspec.Raw()
_QUOTE = 0x22
_BRACKET = 0x5B
_REACHES = (16 * 1024, 128 * 1024, 1024 * 1024)
"""How far from the end the last message's beginning is sought: most are short, few are long."""
_MAX_CANDIDATES = 8


class Message(msgspec.Struct):
    """What is read of a message (chat, Anthropic) or item (Responses)."""

    role: str | None = None
    type: str | None = None
    content: msgspec.Raw = _NOTHING


class _Part(msgspec.Struct):
    type: str | None = None
    text: msgspec.Raw = _NOTHING


_messages = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(Message)
_content = msgspec.json.Decoder(str | list[_Part] | None)
_string = msgspec.json.Decoder(str)
_prompt_list = msgspec.json.Decoder(list[str | int | list[int]])
_OPENING = re.compile(rb'\s*(\{\s*"\w+")')
TEXT_PARTS = frozenset({"text", "input_text"})

CONVERSATION_FIELD = {"chat": "messages", "messages": "messages", "responses": "input"}
PROMPT_FIELD = {
    "completions": "prompt",
    "embeddings": "input",
    "rerank": "query",
    "speech": "input",
    "images": "prompt",
    "image_edits": "prompt",
    "transcriptions": "prompt",
    "translations": "prompt",
}
_WORDLESS = frozenset(("transcriptions", "translations"))
"""The person's words are in the sound; a prompt is a hint, and may be absent."""


class HumanText(msgspec.Struct):
    """The person's last words, and where the walk stands that found them."""

    text: str
    earlier: Iterator[Message] | None = None
    """The messages before, last first."""
    side_task: str = ""
    """What kind of request a tool sent beside the conversation; empty: it is the person's."""


def read_human_text(endpoint: str, fields: Fields, wrappers: Wrappers) -> HumanText:
    """The person's last words (not yet capped); raises `Unreadable` for values of wrong types."""
    if endpoint in PROMPT_FIELD:
        if endpoint in _WORDLESS and PROMPT_FIELD[endpoint] not in fields:
            return HumanText("")
        return HumanText(_read_prompt(PROMPT_FIELD[endpoint], fields))
    name = CONVERSATION_FIELD[endpoint]
    raw = fields.get(name)
    if raw is None:
        if endpoint == "responses":
            return HumanText("")
        raise Unreadable(f"no `{name}` in the body")
    array = memoryview(raw)
    if array[0] == _QUOTE and endpoint == "responses":
        return HumanText(wrappers.words_in(_string.decode(raw)))
    if array[0] != _BRACKET:
        raise Unreadable(f"`{name}` is not a list")
    return _last_words(raw, fields, wrappers)


def _last_words(raw: msgspec.Raw, fields: Fields, wrappers: Wrappers) -> HumanText:
    """Walk back to the person's last words; the first text met tells whether a tool asks."""
    walk = messages_backwards(memoryview(raw))
    task, is_known = "", False
    for message in walk:
        if message.role != "user":
            task = task or SIDE_ITEMS.get(message.type or "", "")
            continue
        texts = texts_of(message)
        if texts and not is_known:
            is_known = True
            if (row := recognise(texts[-1], fields, raw)) is not None:
                task = row.task
                texts[-1] = words_in_side_request(row, texts[-1])
                if row.words == "none":
                    break
        if text := wrappers.words_in(join_parts(texts)):
            return HumanText(text, walk, task)
    return HumanText("", None, task)


def text_of(message: Message) -> str:
    """All text of a message's content, its parts on lines of their own."""
    texts = texts_of(message)
    return join_parts(texts) if texts else ""


def texts_of(message: Message) -> list[str]:
    """The texts of a message's content, part by part."""
    raw = message.content
    if len(raw) == 0:
        return []
    try:
        content = _content.decode(raw)
        if content is None or isinstance(content, str):
            return [content] if content else []
        return [_string.decode(p.text) for p in content if p.type in TEXT_PARTS]
    except msgspec.DecodeError as error:
        raise Unreadable("a message's content is neither text nor parts") from error


def messages_backwards(array: memoryview) -> Iterator[Message]:
    """The messages of a JSON array, last first, looking at no more of it than is asked for.

    In valid JSON a `{` followed by `"` and a key's name is the start of an object, never the inside
    of a string. If what runs from there to the array's end is one whole object, it is the last
    element. Where that does not settle it within a few tries, the array is split from its front.
    """
    end = len(array) - 1
    opening = _opening_of_first(array)
    while opening and (found := _last_element(array, end, opening)) is not None:
        message, end = found
        yield message
        end = _before_separator(array, end)
        if array[end - 1] == _BRACKET:
            return
    try:
        for raw in reversed(_messages.decode(bytes(array[:end]) + b"]")):
            yield _message.decode(raw)
    except msgspec.DecodeError as error:
        raise Unreadable("a message is not an object with a role") from error


def _last_element(array: memoryview, end: int, opening: bytes) -> tuple[Message, int] | None:
    for reach in _REACHES:
        floor = max(0, end - reach)
        window = bytes(array[floor:end])
        at = len(window)
        for _ in range(_MAX_CANDIDATES):
            at = window.rfind(opening, 0, at)
            if at < 0:
                break
            try:
                return _message.decode(memoryview(window)[at:]), floor + at
            except msgspec.DecodeError:
                continue  # an object further in: bytes follow it
        else:
            return None
        if floor == 0:
            return None
    return None


def _opening_of_first(array: memoryview) -> bytes:
    """The first element's bytes up to the end of its first key, such as `{"role"`."""
    found = _OPENING.match(bytes(array[1:80]))
    return found[1] if found is not None else b""


def _before_separator(array: memoryview, end: int) -> int:
    """The position after the previous element, or after the array's opening bracket."""
    while array[end - 1] in b" \t\r\n,":
        end -= 1
    return end


def _read_prompt(name: str, fields: Fields) -> str:
    raw = fields.get(name)
    if raw is None:
        raise Unreadable(f"no `{name}` in the body")
    try:
        prompt = _prompt_value(raw)
    except msgspec.DecodeError as error:
        raise Unreadable(f"`{name}` is neither text nor a list of texts or tokens") from error
    if isinstance(prompt, str):
        return prompt
    return "\n".join(item for item in prompt if isinstance(item, str))


def _prompt_value(raw: msgspec.Raw) -> str | list[Any]:
    if memoryview(raw)[0] == _QUOTE:
        return _string.decode(raw)
    return _prompt_list.decode(raw)


def cap(text: str, limit: int) -> str:
    """At most `limit` characters: the head and the tail, the middle left out."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    tail = limit - 1 - head
    return f"{text[:head]}\n{text[len(text) - tail :]}"
