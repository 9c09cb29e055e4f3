"""Requests that tools send beside the conversation are told apart; only the person is heard."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from matching_kit import route, table, when_route, winner
from rules.bodies.making import PATHS, chat, read
from rules.bodies.side_shapes import CLAUDE, SHAPES, TOOLS, messages
from turnout_rules import side_requests
from turnout_rules.decision import Verdict
from turnout_rules.decision_flow import decide
from turnout_rules.loading import Rules
from turnout_rules.request import Request
from turnout_rules.settings import Reading, Settings
from turnout_rules.side_table import SIDE_REQUESTS
from turnout_rules.turns import Turns

LINES = (Path(__file__).parent / "bodies" / "side_requests.jsonl").read_text("utf-8").splitlines()
RECORDED = [json.loads(line) for line in LINES]
"""What the real programs sent to a stand-in; long texts are cut in their middle."""


def name_of(row: dict[str, Any]) -> str:
    return f"{row['tool']} {row['version']} {row['task'] or 'the person'}: {row['text'][:20]}"


def read_row(row: dict[str, Any], **fields: Any) -> Request:
    return read({**row["body"], **fields}, path=row["path"])


@pytest.mark.parametrize("row", RECORDED, ids=name_of)
def test_what_the_real_programs_sent_is_told_apart(row: dict[str, Any]) -> None:
    request = read_row(row)
    assert (request.side_task, request.task) == (row["task"], row["task"])
    assert request.text == row["text"]


@pytest.mark.parametrize(
    ("endpoint", "task", "words", "body"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES]
)
def test_shapes_of_the_tools_sources_are_told_apart(
    endpoint: str, task: str, words: str, body: dict[str, Any]
) -> None:
    request = read(body, endpoint=endpoint)
    assert request.task == task
    assert "\n".join(line for line in request.text.splitlines() if line) == words


def test_every_row_of_the_table_has_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watch(row: Any, text: str) -> str:
        seen.append(row)
        return side_requests.words_in(row, text)

    monkeypatch.setattr("turnout_rules.humantext.words_in_side_request", watch)
    for row in RECORDED:
        read_row(row)
    for _, endpoint, _, _, body in SHAPES:
        read(body, endpoint=endpoint)
    assert [row.tool for row in SIDE_REQUESTS if row not in seen] == []


def test_literals_of_system_prompts_look_the_same_in_raw_json() -> None:
    for row in SIDE_REQUESTS:
        for literal in row.system:
            first_line = literal.partition("\n")[0]
            assert json.dumps(first_line) == f'"{first_line}"', row.tool


@pytest.mark.parametrize("row", SIDE_REQUESTS, ids=lambda row: f"{row.tool} {row.task}")
def test_who_quotes_a_tools_sentence_is_still_a_person(row: Any) -> None:
    sentence = row.starts or row.system[0]
    for text in (f"{sentence}\n\nWhat is this for?", f"I read this: {sentence} {row.ends}"):
        for body, endpoint in (
            (messages("You are an interactive agent.", ("user", text), **TOOLS), "messages"),
            (chat(text), "chat"),
            (chat(text, **TOOLS), "chat"),
            ({"model": "m", "input": text}, "responses"),
        ):
            assert read(body, endpoint=endpoint).side_task == ""


def test_a_persons_own_chat_about_summaries_is_no_side_request() -> None:
    for text in ("quota", "Summarize the conversation so far", "Give me a title", "### Task:\nhi"):
        assert read(chat(text)).task == ""
        assert read(messages("", ("user", text)), endpoint="messages").task == ""
    probe = messages("", ("user", "quota"), max_tokens=1)
    assert read(probe, endpoint="messages").task == "quota"
    assert read({**probe, **TOOLS}, endpoint="messages").task == ""


@pytest.mark.parametrize("row", [r for r in RECORDED if r["task"]], ids=name_of)
def test_escapes_spaces_and_growth_change_nothing(row: dict[str, Any]) -> None:
    body = json.dumps(row["body"], indent=1).encode()
    request = read(body, path=row["path"])
    assert (request.task, request.text) == (row["task"], row["text"])


# -- what the rules make of it -------------------------------------------------------------------


WORDS_OF_TOOLS = table(
    route("language", "language", "title", "conversation", "summary", "compact*"),
    route("code", "failing title test", priority=-1),
    route("rest", ".*"),
)


@pytest.mark.parametrize("row", [r for r in RECORDED if r["task"]], ids=name_of)
def test_a_rule_never_hits_a_tools_own_sentences(row: dict[str, Any]) -> None:
    for word in ("natural", "handoff", "scratchpad", "sentence-case", "capital", "analysis"):
        if word not in row["text"]:
            assert winner(table(route("hit", word)), read_row(row)) is None, word


TASKS_TABLE = table(
    when_route("small", task=("title", "summary", "topic", "quota", "suggestion")),
    when_route("big", task=("compaction",)),
    route("rest", ".*"),
)


@pytest.mark.parametrize("row", RECORDED, ids=name_of)
def test_a_rule_sends_a_kind_where_a_person_wants_it(row: dict[str, Any]) -> None:
    small = ("title", "summary", "topic", "quota", "suggestion")
    wanted = "small" if row["task"] in small else "big" if row["task"] == "compaction" else "rest"
    request = read_row(row)
    decision = TASKS_TABLE.decide(request)
    if request.bound:
        assert decision.route is None
    else:
        assert decision.route == wanted
    assert decision.task == row["task"]


TITLE = next(row for row in RECORDED if row["task"] == "title")


def test_what_the_client_states_wins_and_only_that_names_a_route() -> None:
    stated = read_row(TITLE, metadata={"task": "naming"})
    assert (stated.task, stated.side_task) == ("naming", "title")
    assert stated.text == TITLE["text"]
    named = table(route("title", "never"), route("naming", "never"), route("rest", ".*"))
    assert winner(named, stated) == "naming"
    assert winner(named, read_row(TITLE)) == "rest"
    assert named.decide(read_row(TITLE, metadata={"task": "title"})).route == "title"


def test_the_explanation_says_which_kind_it_is() -> None:
    found = str(TASKS_TABLE.explain(read_row(TITLE)))
    assert "  task      title: a tool's own request (title)" in found
    assert "task" not in str(TASKS_TABLE.explain(read(chat("hello"))))


# -- the memory of turns -------------------------------------------------------------------------


def claude_code(text: str = "", **fields: Any) -> Request:
    """The main conversation, or with `text` what forks from it: same system, tools, model."""
    turns = [("user", "fix the failing title test"), ("assistant", "Done.")]
    body = messages("You are an interactive agent.", turns[0], **TOOLS, **fields)
    if text:
        forked = messages("", *turns, ("user", text))
        body["messages"] = forked["messages"]
    return read(body, endpoint="messages")


FORKS = {
    "suggestion": "[SUGGESTION MODE: Suggest what the user might naturally type next into Claude "
    "Code.]\n\nReply with ONLY the suggestion, no quotes or explanation.",
    "summary": "The user stepped away and is coming back. Recap in under 40 words. Skip em-dash "
    "tangents.",
    "memory": "You are now acting as the memory extraction subagent. Analyze the most recent ~4 "
    "messages to update your persistent memory systems.",
}


@pytest.mark.parametrize("stated", [{}, {"metadata": {"task": "work"}}], ids=["plain", "stated"])
@pytest.mark.parametrize("by_conversation", [False, True], ids=["turn", "conversation"])
@pytest.mark.parametrize("task", FORKS)
def test_a_fork_neither_sets_nor_follows_the_decision_of_its_main_turn(
    task: str, by_conversation: bool, stated: dict[str, Any]
) -> None:
    main, fork = claude_code(**stated), claude_code(FORKS[task], **stated)
    assert fork.side_task == task
    assert fork.text == main.text
    turns = Turns(WORDS_OF_TOOLS, Reading(conversation=by_conversation))
    decision = WORDS_OF_TOOLS.decide(main)
    for one, other in ((main, fork), (fork, main)):
        key = turns.key(one)
        turns.remember(key, one, decision, 0.0)
        assert turns.recall(key, one, 1.0) is not None
        assert turns.key(other) != key


def test_the_classifier_hears_the_persons_words_alone() -> None:
    heard: list[str] = []

    async def classify(request: Request) -> Verdict:
        heard.append(request.text)
        return Verdict(route=None, reason="nobody there")

    semantic = table(route("work", examples=("write code",)), route("rest", ".*"))
    rules = Rules(table=semantic, settings=Settings(), warnings=(), files=(), version="")
    for row in RECORDED:
        heard.clear()
        request = read_row(row)
        asyncio.run(decide(rules, request, classify, turns=None, now=0.0))
        assert heard == ([row["text"]] if row["text"] and not request.bound else [])


def test_words_before_a_local_command_are_not_those_behind_it() -> None:
    parts = [
        "<command-name>/model</command-name>\n<command-args>opus, please translate</command-args>",
        "<local-command-stdout>Set model</local-command-stdout>",
        "fix the parser",
    ]
    content = [{"type": "text", "text": part} for part in parts]
    body = {"model": "m", "system": CLAUDE, "messages": [{"role": "user", "content": content}]}
    assert read(body, endpoint="messages").text == "fix the parser"
    del content[1]
    assert "translate" in read(body, endpoint="messages").text


@pytest.mark.parametrize("size", [1_000, 300_000])
def test_a_long_transcript_is_read_in_linear_time(size: int) -> None:
    turns = "User: fix it\nAssistant: done\n" * (size // 28)
    body = messages(
        "Generate a short kebab-case name (2-4 words) that captures the main topic",
        ("user", f"<conversation>\n{turns}</conversation>"),
    )
    assert read(body, endpoint="messages").task == "title"
    assert read(chat(turns), path=PATHS["chat"]).task == ""
