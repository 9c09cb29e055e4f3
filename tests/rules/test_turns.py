"""One decision per human turn."""

from __future__ import annotations

import threading

from matching_kit import route, table
from rules.bodies.making import chat, read
from rules.bodies.tools import claude_code, dumps
from turnout_rules.decision import Decision
from turnout_rules.request import Request
from turnout_rules.settings import Reading
from turnout_rules.table import Table
from turnout_rules.turns import Turns


def decision(target: str) -> Decision:
    return Decision(route="r", target=target, layer="rule", reason="test")


TABLE = table(route("rest", ".*"))


def turns_of(reading: Reading | None = None, rules: Table = TABLE) -> Turns:
    return Turns(rules, reading or Reading())


def recall(turns: Turns, request: Request, now: float) -> Decision | None:
    return turns.recall(turns.key(request), request, now)


def remember(turns: Turns, request: Request, decided: Decision, now: float) -> None:
    turns.remember(turns.key(request), request, decided, now)


def target_of(found: Decision | None) -> str | None:
    return None if found is None else found.target


def loop(rounds: int, ask: str = "fix it") -> Request:
    return read(dumps(claude_code(5_000, loops=rounds, ask=ask)), endpoint="messages")


def test_a_tool_loop_follows_its_turn() -> None:
    turns = turns_of()
    remember(turns, loop(0), decision("api/x"), 0.0)
    for rounds in (0, 1, 5, 20):
        assert target_of(recall(turns, loop(rounds), 1.0)) == "api/x"


def test_a_new_message_is_a_new_turn() -> None:
    turns = turns_of()
    remember(turns, loop(1), decision("api/x"), 0.0)
    assert recall(turns, loop(1, ask="another question"), 1.0) is None


def conversation(*texts: str) -> Request:
    body = chat(texts[0])
    for text in texts[1:]:
        body["messages"] += [
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": text},
        ]
    return read(body)


def test_a_whole_conversation_stays_where_it_began_if_the_settings_say_so() -> None:
    turns = turns_of(Reading(conversation=True))
    remember(turns, conversation("refactor the parser"), decision("api/big"), 0.0)
    follow_up = conversation("refactor the parser", "commit it")
    assert target_of(recall(turns, follow_up, 1.0)) == "api/big"
    assert recall(turns_of(), follow_up, 1.0) is None
    assert recall(turns, conversation("commit it"), 1.0) is None


def test_an_explicit_route_is_its_own_thread() -> None:
    turns = turns_of(Reading(conversation=True))
    remember(turns, read(chat("x")), decision("api/x"), 0.0)
    assert recall(turns, read(chat("x"), headers={"x-turnout-route": "big"}), 1.0) is None
    assert recall(turns, read(chat("x", model="turnout/big")), 1.0) is None


def test_a_decision_is_forgotten_after_its_time() -> None:
    turns = turns_of(Reading(turn_ttl_s=10))
    remember(turns, read(chat("x")), decision("api/x"), 0.0)
    assert recall(turns, read(chat("x")), 9.0) is not None
    assert recall(turns, read(chat("x")), 18.0) is not None, "use renews it"
    assert recall(turns, read(chat("x")), 29.0) is None
    assert len(turns) == 0


def test_memory_is_bounded_and_the_least_used_goes_first() -> None:
    turns = turns_of(Reading(max_turns=3))
    for number in range(3):
        remember(turns, read(chat(str(number))), decision("api/x"), 0.0)
    recall(turns, read(chat("0")), 1.0)
    remember(turns, read(chat("3")), decision("api/x"), 2.0)
    assert len(turns) == 3
    assert recall(turns, read(chat("0")), 3.0) is not None
    assert recall(turns, read(chat("1")), 3.0) is None


def test_a_request_without_words_has_no_turn() -> None:
    turns = turns_of()
    remember(turns, read(chat("")), decision("api/x"), 0.0)
    assert recall(turns, read(chat("")), 0.0) is None


def test_many_threads_at_once_do_no_harm() -> None:
    turns = turns_of(Reading(max_turns=50))
    requests = [read(chat(str(number))) for number in range(100)]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for request in requests * 5:
                remember(turns, request, decision(f"api/{request.text}"), 0.0)
                found = recall(turns, request, 0.0)
                assert found is None or found.target == f"api/{request.text}"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert len(turns) <= 50


def test_a_strange_part_in_a_long_conversation_is_passed_over() -> None:
    body = chat("hello " * 2_000)
    body["messages"][0]["content"] = [
        {"type": [[]], "text": "x"},
        {"type": "text", "text": "hello " * 2_000},
    ]
    body["messages"].append({"role": "user", "content": "go on"})
    assert read(body).turn
