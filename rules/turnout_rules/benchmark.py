"""The decision path measured in-process: decode, parse, text, normalise, match, splice.

Tables and bodies are made up from a fixed seed, so two runs compare. The clock is the caller's;
nothing is sent, read or written.
"""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from turnout_rules.decision import PASS, Decision
from turnout_rules.model import Match, Route, Upstream
from turnout_rules.reading import Reader
from turnout_rules.request import Request
from turnout_rules.rewriting import rewrite
from turnout_rules.settings import Reading
from turnout_rules.table import Table, build_table
from turnout_rules.turns import Turns

type Clock = Callable[[], int]
"""Nanoseconds, e.g. `time.perf_counter_ns`."""

ROUTES = (10, 1_000, 10_000)
BODIES_KB = (1, 15, 250)
_TEXT_CHARS = {1: 300, 15: 2_000, 250: 5_000}
_VARIANTS = 24
_SEED = 20_261_201
_SYLLABLES = [
    "ba",
    "co",
    "di",
    "fu",
    "ge",
    "hi",
    "jo",
    "ka",
    "lu",
    "me",
    "ni",
    "po",
    "ra",
    "so",
    "tu",
    "ve",
    "wi",
    "xa",
    "yo",
    "zu",
    "bran",
    "cle",
    "dro",
    "fri",
    "gli",
    "stu",
]
_HAN = (
    "路由模型翻译函数总结天气报告代码数据训练推理请求语言图片视频计划会议邮件合同分析设计测试部署"
)
_FILLER_TEXT = (
    "please look at this and tell me what you think about the next step we should take "
    "before the meeting on Thursday because nobody else has had time for it yet"
)
_FILLER = _FILLER_TEXT.split()


class Row(msgspec.Struct, frozen=True):
    """One line of the report."""

    routes: int
    body_kb: int
    p50_us: float
    p99_us: float
    name: str = ""
    """For agent-shaped bodies: whose shape; for turns: which of their requests."""
    decode_p50_us: float = 0.0
    """For compressed bodies: decompression, not counted in the others."""


def make_routes(count: int) -> list[Route]:
    """`count` routes with five keywords each, and a pattern on every fifth; then a catch-all."""
    rng = random.Random(_SEED)  # noqa: S311 - made-up words, no secrets
    routes = []
    for number in range(count - 1):
        entries = [_word(rng, number, at) for at in range(5)]
        if number % 5 == 0:
            word = _latin(rng)
            entries.append(rf"re:\b{word}(s|ed|ing)? (file|step){number}\d*\b")
        routes.append(
            Route(
                name=f"route-{number}",
                match=Match(any=tuple(entries)),
                priority=rng.randrange(100),
                targets=((f"api/model-{number % 7}", 1),),
                order=number,
            )
        )
    catch_all = Route(
        name="fallback",
        match=Match(any=(".*",)),
        priority=-1,
        targets=(("api/general", 1),),
        order=count,
    )
    return [*routes, catch_all]


def make_table(count: int) -> Table:
    """The table of `make_routes(count)`."""
    upstream = Upstream(name="api", base_url="https://api.example.com/v1")
    return build_table(make_routes(count), {"api": upstream}, version=f"bench-{count}")


def make_bodies(body_kb: int, table: Table) -> list[bytes]:
    """Chat bodies of about `body_kb` KB whose last message hits a keyword of the table."""
    rng = random.Random(_SEED + body_kb)  # noqa: S311
    return [
        _chat_body(rng, body_kb * 1_000, _TEXT_CHARS.get(body_kb, 2_000), table)
        for _ in range(_VARIANTS)
    ]


def measure(
    clock: Clock,
    *,
    routes: Sequence[int] = ROUTES,
    bodies_kb: Sequence[int] = BODIES_KB,
    seconds: float = 1.0,
) -> Iterator[Row]:
    """A row for each table size and body size, as each is done; about `seconds` a row."""
    for count in routes:
        table = make_table(count)
        with quiet_collector():
            for body_kb in bodies_kb:
                bodies = make_bodies(body_kb, table)
                times = run(clock, table, bodies, {}, "/v1/chat/completions", seconds)
                yield Row(count, body_kb, percentile(times, 50), percentile(times, 99))


def measure_turns(
    clock: Clock, *, routes: Sequence[int] = (1_000,), seconds: float = 1.0
) -> Iterator[Row]:
    """Deciding alone, with the memory of turns: a turn's first request, and one that follows."""
    request_headers = {"authorization": "Bearer a-key-of-some-length-as-clients-have"}
    for count in routes:
        table, reader = make_table(count), Reader(Reading())
        times: dict[str, list[int]] = {"first of a turn": [], "follows its turn": []}
        with quiet_collector():
            bodies = make_bodies(1, table)
            until = clock() + int(seconds * 1e9)
            while clock() < until or not times["first of a turn"]:
                turns = Turns(table, Reading())
                for name in times:
                    for body in bodies:
                        request = reader.read(
                            method="POST",
                            path="/v1/chat/completions",
                            headers=request_headers,
                            body=body,
                        )
                        started = clock()
                        _decide_in_turn(table, turns, request)
                        times[name].append(clock() - started)
        for name, taken in times.items():
            taken.sort()
            yield Row(count, 1, percentile(taken, 50), percentile(taken, 99), name)


def _decide_in_turn(table: Table, turns: Turns, request: Request) -> Decision:
    key = turns.key(request)
    decision = turns.recall(key, request, 0.0)
    if decision is None:
        decision = table.decide(request)
        turns.remember(key, request, decision, 0.0)
    return decision


def run(
    clock: Clock,
    table: Table,
    bodies: Sequence[bytes],
    headers: dict[str, str],
    path: str,
    seconds: float,
) -> list[int]:
    """Nanoseconds of each pass over the whole path, sorted; warmed up first."""
    reader = Reader(Reading())
    for body in [*bodies] * 3:
        decide_once(reader, table, body, headers, path)
    times = []
    until = clock() + int(seconds * 1e9)
    while True:
        for body in bodies:
            started = clock()
            decide_once(reader, table, body, headers, path)
            times.append(clock() - started)
        if clock() >= until:
            return sorted(times)


def decide_once(
    reader: Reader, table: Table, body: bytes, headers: dict[str, str], path: str
) -> bytes:
    """What the proxy does to one request: read, decide, rewrite."""
    request = reader.read(method="POST", path=path, headers=headers, body=body)
    decision = table.decide(request)
    if decision.target == PASS:
        return body
    route = table.route(decision.route or "")
    return rewrite(request, table.resolve(decision.target), route).body


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the collector from walking the table, as the proxy does after a reload."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def percentile(times: list[int], percent: int) -> float:
    """Microseconds; `times` is sorted."""
    at = min(len(times) - 1, len(times) * percent // 100)
    return round(times[at] / 1_000, 1)


def _latin(rng: random.Random) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 4)))


def _word(rng: random.Random, number: int, at: int) -> str:
    if at < 2:
        return "".join(rng.choice(_HAN) for _ in range(rng.randint(3, 5)))
    word = f"{_latin(rng)}{number % 97}"
    return f"{word} {_latin(rng)}" if at == 4 else word


def _text(rng: random.Random, chars: int, table: Table) -> str:
    """`chars` characters of English and Chinese with one keyword of the table in them."""
    words: list[str] = []
    length = 0
    while length < chars:
        word = rng.choice(_FILLER) if rng.random() < 0.8 else _han_phrase(rng)
        words.append(word)
        length += len(word) + 1
    match = rng.choice(table.routes[:-1]).match
    if match is not None:
        words.insert(rng.randrange(len(words)), match.any[rng.randrange(5)])
    return " ".join(words)[:chars]


def _han_phrase(rng: random.Random) -> str:
    return "".join(rng.choice(_HAN) for _ in range(rng.randint(2, 8))) + rng.choice("，。？")


def _chat_body(rng: random.Random, size: int, text_chars: int, table: Table) -> bytes:
    system = "You are a helpful assistant. Answer in the language of the question."
    messages = [{"role": "system", "content": system}]
    room = size - text_chars * 2
    while room > 0:
        for role in ("user", "assistant"):
            words = " ".join(rng.choice(_FILLER) for _ in range(min(400, max(8, room // 12))))
            messages.append({"role": role, "content": words})
            room -= len(words)
    messages.append({"role": "user", "content": _text(rng, text_chars, table)})
    body = {"messages": messages, "model": "gpt-4o", "temperature": 0.7, "max_tokens": 512}
    return json.dumps(body, ensure_ascii=False).encode()
