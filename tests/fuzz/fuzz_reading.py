"""Fuzzes body reading: `PYTHONPATH=tests python tests/fuzz/fuzz_reading.py --minutes 10`.

Mutates real bodies (the recorded ones and those shaped like the tools') by bytes and by structure,
packs some of them, and reads them. Anything but `Request` or `Unreadable`, any answer of a wrong
type, any splice that does not parse back, and any single read over two seconds is a finding: it is
printed with its seed and the exit status is 1. Inputs that show new reasons or new sets of facts
are kept and mutated further.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
import traceback
import zlib

from rules.bodies.making import PATHS, READER, recorded, target
from rules.bodies.side_shapes import SHAPES
from rules.bodies.tools import TOOLS, dumps
from turnout_rules.capabilities import obstacle
from turnout_rules.model import Model, Target, Upstream
from turnout_rules.rewriting import rewrite
from turnout_rules.unreadable import Unreadable

SLOW_S = 2.0
MAX_POOL = 4_000
TOKENS = [
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"null", b"true", b"NaN", b"1e999", b"-"),
    *(b'"model":"x",', b'"role":"user"', b'"content":', b'{"type":"text","text":"a"}', b"\xff"),
    *(b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"<system-reminder>", b"</task>", b"<task>"),
    *(b'"type":"image"', b'"encrypted_content":"x"', b'"tools":[{}]', b"[[[[[[[[", b'{"role"'),
]
TARGETS = (
    target(),
    target("https://api.openai.com/v1", "gpt-5"),
    Target("v/m", Upstream(name="v", engine="vllm"), Model(name="m", context=1_000)),
)
ENCODINGS = {"gzip": gzip.compress, "deflate": zlib.compress, "": bytes}


def seeds() -> list[bytes]:
    """The corpus to begin with."""
    bodies = [row["body"].encode() for row in recorded() if len(row["body"]) < 8_000]
    bodies += [dumps(body) for *_, body in SHAPES]
    return bodies + [dumps(build(1_500)) for _, build in TOOLS.values()]


def mutate(body: bytes, pool: list[bytes], dice: random.Random) -> bytes:
    """One to four small changes."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(body) + 1)
        end = min(len(body), at + dice.choice([0, 1, 2, 8, 64]))
        kind = dice.randrange(6)
        if kind == 0:
            body = body[:at] + dice.choice(TOKENS) + body[end:]
        elif kind == 1:
            body = body[:at] + bytes([dice.randrange(256)]) + body[at + 1 :]
        elif kind == 2:
            body = body[:at] + body[end:]
        elif kind == 3:
            other = dice.choice(pool)
            start = dice.randrange(len(other) + 1)
            body = body[:at] + other[start : start + dice.choice([4, 40, 400])] + body[at:]
        elif kind == 4:
            body = body[:at] + body[at:end] * dice.choice([2, 3, 50]) + body[end:]
        else:
            body = restructure(body, dice)
    return body[:60_000]


def restructure(body: bytes, dice: random.Random) -> bytes:
    """A change that keeps it JSON: some value somewhere becomes another."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    node = value
    for _ in range(dice.randint(0, 5)):
        if not isinstance(node, dict | list):
            break
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        inner = [k for k in keys if isinstance(node[k], dict | list)]
        if not inner:
            break
        node = node[dice.choice(inner)]
    news = [None, True, 5, -1.5, "", "text", [], {}, [[]], [{}], {"type": "text"}, 10**30, "<task>"]
    if isinstance(node, dict):
        names = [
            *node,
            "model",
            "content",
            "role",
            "type",
            "tools",
            "metadata",
            "stream",
            "max_tokens",
        ]
        node[dice.choice(names)] = dice.choice(news)
    elif isinstance(node, list):
        node.insert(dice.randint(0, len(node)), dice.choice(news))
    try:
        return json.dumps(value, indent=dice.choice([None, None, 1])).encode()
    except ValueError:
        return body


def examine(body: bytes, path: str, encoding: str) -> str:
    """Read it and ask everything; the behaviour seen, as a short word."""
    packed = ENCODINGS[encoding](body)
    headers = {"content-encoding": encoding} if encoding else {}
    try:
        request = READER.read(method="POST", path=path, headers=headers, body=packed)
    except Unreadable as unreadable:
        return unreadable.reason[:40]
    assert isinstance(request.text, str)
    assert len(request.text) <= READER.reading.max_text_chars
    assert all(isinstance(need, str) for need in request.needs)
    assert isinstance(request.bound, str)
    assert request.input_tokens > 0
    assert request.output_tokens >= 0
    assert isinstance(request.turn, str)
    for part in ("system", "tools", "all"):
        assert isinstance(request.text_on(part), str)
    before = json.loads(body, parse_int=str)
    for to in TARGETS:
        assert isinstance(obstacle(request, to), str)
        after = json.loads(rewrite(request, to, None).body, parse_int=str)
        assert after["model"] == to.model.upstream_model
        if to is TARGETS[0]:
            expected = {**before, "model": after["model"]}
            expected.pop("logit_bias", None)
            assert after == expected
    return f"{request.endpoint} {sorted(request.needs)} {request.bound} {bool(request.text)}"


def main() -> int:
    """Run for the time given; 1 if there was a finding."""
    parser = argparse.ArgumentParser(description="Fuzz body reading.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    dice = random.Random(seed)
    pool = seeds()
    seen: set[str] = set()
    runs = 0
    ends = time.monotonic() + args.minutes * 60
    print(f"fuzzing body reading for {args.minutes:g} minutes, seed {seed}")
    while time.monotonic() < ends:
        body = mutate(dice.choice(pool), pool, dice)
        path = dice.choice(list(PATHS.values()))
        encoding = dice.choice(["", "", "", *ENCODINGS])
        begun = time.monotonic()
        try:
            behaviour = examine(body, path, encoding)
        except Exception:
            traceback.print_exc()
            print(f"finding after {runs} runs, seed {seed}: {path} {encoding!r}\n{body!r}")
            return 1
        runs += 1
        if time.monotonic() - begun > SLOW_S:
            print(f"slow: {time.monotonic() - begun:.1f} s, seed {seed}, {path}\n{body[:500]!r}")
            return 1
        if (path + behaviour) not in seen and len(pool) < MAX_POOL:
            seen.add(path + behaviour)
            pool.append(body)
    print(f"no finding in {runs} runs; {len(seen)} behaviours seen")
    return 0


if __name__ == "__main__":
    sys.exit(main())
