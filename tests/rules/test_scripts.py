"""Route scripts: what they see, what they may answer, and that none of them breaks a request."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from turnout_rules.model import Place
from turnout_rules.problems import Problem
from turnout_rules.request import Request
from turnout_rules.scripts import Script, load_script

pytestmark = pytest.mark.quiet


def load(
    tmp_path: Path, source: str, budget_ms: float = 2.0
) -> tuple[Script | None, list[Problem]]:
    (tmp_path / "pick.py").write_text(source, "utf-8")
    problems: list[Problem] = []
    return load_script(
        tmp_path, "pick.py", Place("routes.yaml", 3, 5), problems, budget_ms
    ), problems


def script(tmp_path: Path, body: str, budget_ms: float = 2.0) -> Script:
    loaded, problems = load(tmp_path, f"def choose(request):\n{body}", budget_ms)
    assert loaded is not None, problems
    return loaded


REQUEST = Request.from_text("hello there", model="gpt-4o")


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("    return 'api/fast'", "api/fast"),
        ("    return ' api/org/model '", "api/org/model"),
        ("    return 'pass'", "pass"),
        ("    return None", None),
        ("    pass", None),
        ("    return 'api/' + request.model", "api/gpt-4o"),
        ("    return 'api/x' if 'hello' in request.text else None", "api/x"),
        ("    return 'api/' + request.endpoint", "api/chat"),
    ],
)
def test_what_a_script_chooses(tmp_path: Path, body: str, answer: str | None) -> None:
    chosen = script(tmp_path, body)
    assert chosen.choose(REQUEST) == answer
    assert chosen.errors == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    return 5", "returned 5"),
        ("    return 'nonsense'", "returned 'nonsense'"),
        ("    return 'a b/c'", "no target"),
        ("    return ['api/x']", "no target"),
        ("    return 1 / 0", "ZeroDivisionError: division by zero (line 2)"),
        ("    raise SystemExit(3)", "SystemExit"),
        ("    raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("    import asyncio\n    raise asyncio.CancelledError", "CancelledError"),
        ("    class Odd(BaseException): ...\n    raise Odd", "Odd"),
        ("    return request.nothing", "AttributeError"),
        ("    request.model = 'x'", "read-only"),
        ("    return choose(request)", ""),
        ("    yield 'api/x'", "no target"),
    ],
)
def test_nonsense_and_errors_choose_nothing_and_are_reported(
    tmp_path: Path, body: str, reason: str
) -> None:
    chosen = script(tmp_path, body)
    assert chosen.choose(REQUEST) is None
    assert reason in chosen.last_error and chosen.last_error


LOOPS = [
    "    while True:\n        pass",
    "    n = 0\n    while n >= 0:\n        n += 1",
    "    import itertools\n    for _ in itertools.count():\n        pass",
    "    return [x for x in iter(int, 1)]",
    "    def deep(n):\n        return deep(n - 1) + deep(n - 2) if n > 1 else 1\n    deep(200)",
    "    def forever():\n        while True:\n            yield 1\n    return sum(forever())",
    "    while True:\n        try:\n            pass\n        except Exception:\n            pass",
]


@pytest.mark.parametrize("body", LOOPS)
def test_a_runaway_loop_is_interrupted(tmp_path: Path, body: str) -> None:
    chosen = script(tmp_path, body)
    started = time.perf_counter()
    assert chosen.choose(REQUEST) is None
    assert time.perf_counter() - started < 1
    assert chosen.overruns == 1
    assert "interrupted" in chosen.last_error


def test_a_runaway_loop_is_interrupted_in_every_thread(tmp_path: Path) -> None:
    chosen = script(tmp_path, LOOPS[0])
    threads = [threading.Thread(target=chosen.choose, args=(REQUEST,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_a_script_that_keeps_overrunning_is_switched_off(tmp_path: Path) -> None:
    chosen = script(
        tmp_path, "    import time\n    time.sleep(0.03)\n    return 'api/x'", budget_ms=20.0
    )
    for _ in range(5):
        assert chosen.choose(REQUEST) == "api/x"
    assert chosen.is_disabled
    assert chosen.choose(REQUEST) is None
    assert (chosen.calls, chosen.overruns) == (5, 5)
    assert "switched off" in chosen.last_error


def test_rare_overruns_are_forgiven(tmp_path: Path) -> None:
    body = (
        "    import time\n    time.sleep(0.02 if request.text == 'slow' else 0)\n    return 'api/x'"
    )
    chosen = script(tmp_path, body, budget_ms=15.0)
    slow = Request.from_text("slow")
    for _ in range(8):
        chosen.choose(slow)
        for _ in range(40):
            chosen.choose(REQUEST)
    assert chosen.overruns >= 8 and not chosen.is_disabled


@pytest.mark.parametrize(
    ("source", "part", "line"),
    [
        ("def choose(request:\n", "was never closed", 1),
        ("x = 1\n", "no function `choose(request)`", 1),
        ("async def choose(request):\n    pass\n", "no function", 1),
        ("import nothing_of_that_name\n", "ModuleNotFoundError", 1),
        ("x = 1\ny = x / 0\n", "division by zero", 2),
        ("raise SystemExit\n", "SystemExit", 1),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt", 1),
    ],
)
def test_a_script_that_cannot_load_is_a_problem_with_its_line(
    tmp_path: Path, source: str, part: str, line: int
) -> None:
    loaded, (problem,) = load(tmp_path, source)
    assert loaded is None
    assert part in problem.message
    assert (problem.file, problem.line) == (str(tmp_path / "pick.py"), line)


def test_a_script_that_loops_while_it_loads_is_a_problem(tmp_path: Path) -> None:
    loaded, (problem,) = load(tmp_path, "while True:\n    pass\n")
    assert loaded is None and "to load" in problem.message


def test_the_request_a_script_sees_has_no_credentials(tmp_path: Path) -> None:
    from turnout_rules.reading import Reader
    from turnout_rules.settings import Reading

    headers = {
        "authorization": "Bearer sk-1",
        "x-api-key": "sk-2",
        "cookie": "c",
        "x-goog-api-key": "sk-3",
        "user-agent": "tool",
    }
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function",'
    body += b'"function":{"name":"search"}}]}'
    request = Reader(Reading()).read(
        method="POST", path="/v1/chat/completions", headers=headers, body=body
    )
    seen = script(
        tmp_path,
        "    assert dict(request.headers) == {'user-agent': 'tool'}, request.headers\n"
        "    assert request.tools == ('search',), request.tools\n"
        "    assert 'tools' in request.needs and request.input_tokens > 0\n"
        "    return 'api/' + request.headers['user-agent']",
    )
    assert seen.choose(request) == "api/tool", seen.last_error


def test_a_cheap_script_costs_microseconds_and_others_cost_nothing(tmp_path: Path) -> None:
    chosen = script(tmp_path, "    return 'api/x' if 'code' in request.text else None")
    for _ in range(100):
        chosen.choose(REQUEST)
    costs = []
    for _ in range(500):
        started = time.perf_counter()
        chosen.choose(REQUEST)
        costs.append(time.perf_counter() - started)
    assert sorted(costs)[250] < 50e-6
    assert not sys.monitoring.get_events(4), "only the scripts' own code is watched"


def test_each_kind_of_trouble_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = script(tmp_path, "    return 1 / 0", budget_ms=10_000)
    for _ in range(100):
        chosen.choose(REQUEST)
    assert chosen.errors == 100
    assert len(caplog.records) == 1
    assert "hello" not in caplog.text


def test_an_answer_and_an_error_that_cannot_be_shown_break_nothing(tmp_path: Path) -> None:
    source = (
        "class Bad(Exception):\n"
        "    def __str__(self):\n        raise ValueError\n"
        "    __repr__ = __str__\n"
        "def choose(request):\n"
        "    if request.text == 'raise':\n        raise Bad\n"
        "    return Bad() if request.text == 'object' else [Bad()]\n"
    )
    loaded, _ = load(tmp_path, source, 10_000)
    assert loaded is not None
    for text in ("raise", "object", "list"):
        assert loaded.choose(Request.from_text(text)) is None
    assert loaded.errors == 3
