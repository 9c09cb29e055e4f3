"""Why, in short sentences: the words of a decision's `reason`. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from turnout_rules.model import Route, Span, When
from turnout_rules.naming import printable

if TYPE_CHECKING:
    from turnout_rules.request import Request

_MAX_SKIPPED_SHOWN = 3
_MAX_CHARS = 80


@lru_cache(maxsize=4_096)
def entry_words(entry: str) -> str:
    """How an entry of `match` is spoken of: `keyword "翻译"`."""
    kind, colon, rest = entry.partition(":")
    if colon and kind == "re":
        return f'pattern "{_short(rest.strip())}"'
    if colon and kind == "prefix":
        return f'prefix "{_short(rest.strip())}"'
    return f'keyword "{_short(entry.strip())}"'


def rule_reason(route: Route, written: Sequence[str], request: Request) -> str:
    """Why a rule won: what matched, and its priority."""
    match = route.match
    if route.when is None and match is not None and not match.all and written:
        return f"{entry_words(written[0])} (priority {route.priority})"
    parts = []
    if match is not None:
        if written:
            needed = match.all
            shown = [
                *(e for e in written if e in needed),
                *[e for e in written if e in match.any][:1],
            ]
            parts += [entry_words(entry) for entry in shown[:3]]
        elif match.none and not match.any:
            parts.append(f"none of {len(match.none)} excluded entries")
    if route.when is not None:
        parts += _when_words(route.when, request)
    if not parts:
        parts.append("takes everything that reaches it")
    return f"{', '.join(parts)} (priority {route.priority})"


def _when_words(when: When, request: Request) -> Iterable[str]:
    if when.endpoint:
        yield f"endpoint {request.endpoint}"
    if when.model:
        yield f'model "{_short(request.model)}"'
    if when.path:
        yield f"path {_short(request.path.partition('?')[0])}"
    for name, _ in when.header:
        yield f"header {name}"
    if when.client:
        yield f"client {request.client}"
    if when.has:
        yield f"has {', '.join(when.has)}"
    if when.lacks:
        yield f"no {', '.join(when.lacks)}"
    if when.input_tokens is not None:
        yield f"{request.input_tokens:,} input tokens {span_words(when.input_tokens)}"
    if when.task:
        yield f'task "{_short(request.task)}"'
    if when.language:
        yield f"language {'/'.join(when.language)}"


def span_words(span: Span) -> str:
    """`≥ 60,000`, `≤ 500` or both."""
    bounds = []
    if span.min is not None:
        bounds.append(f"≥ {span.min:,}")
    if span.max is not None:
        bounds.append(f"≤ {span.max:,}")
    return " and ".join(bounds)


def pass_reason(skipped: Sequence[str], known: str = "") -> str:
    """Why a request is left as it is."""
    if not skipped:
        return known or "no rule matched"
    shown = "; ".join(skipped[:_MAX_SKIPPED_SHOWN])
    more = len(skipped) - _MAX_SKIPPED_SHOWN
    return f"no route can serve it: {shown}" + (f"; and {more} more" if more > 0 else "")


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"
