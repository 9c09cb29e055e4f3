"""What the person wrote, as every tool wraps it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.bodies.making import chat, read
from rules.bodies.tools import ASK, TOOLS, claude_code, codex, dumps, noise
from turnout_rules.humantext import cap, messages_backwards
from turnout_rules.reading import Reader
from turnout_rules.settings import Reading
from turnout_rules.wrappers import CUT, OPEN, Wrappers

WRAPPERS = Wrappers()


@pytest.mark.parametrize("size", [1_000, 15_000, 300_000])
@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_gives_the_persons_words_alone(tool: str, size: int) -> None:
    path, build = TOOLS[tool]
    assert read(dumps(build(size)), path=path).text == ASK


@pytest.mark.parametrize("tool", TOOLS)
def test_escapes_and_spaces_do_not_matter(tool: str) -> None:
    path, build = TOOLS[tool]
    asked = "翻译：\u200b「早安」 😀"
    body = dumps(build(2_000, ask=asked), ascii_only=True, compact=False)
    assert read(body, path=path).text == asked


@pytest.mark.parametrize("tool", ["Claude Code", "Codex"])
def test_bodies_of_three_megabytes_are_read(tool: str) -> None:
    path, build = TOOLS[tool]
    assert read(dumps(build(3_000_000)), path=path).text == ASK


def test_a_long_tool_loop_is_walked_back() -> None:
    assert read(dumps(codex(50_000, loops=400)), path="/v1/responses").text == ASK
    assert read(dumps(claude_code(50_000, loops=400)), path="/v1/messages").text == ASK


def test_words_beside_the_agents_file_in_one_message_are_found() -> None:
    texts = [
        "<recommended_plugins>\ncode\n</recommended_plugins>",
        "# AGENTS.md instructions for /repo\n\nUse debug.",
        "<environment_context>/repo</environment_context>",
        ASK,
    ]
    content = [{"type": "input_text", "text": text} for text in texts]
    body = {"model": "m", "input": [{"role": "user", "content": content}]}
    assert read(body, endpoint="responses").text == ASK
    assert read(chat("# AGENTS.md instructions for /x\n\ncode")).text == ""


def test_the_last_human_message_counts_not_the_first() -> None:
    body = claude_code(5_000)
    body["messages"] += [
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        {"role": "user", "content": [{"type": "text", "text": "now commit it"}]},
    ]
    assert read(body, endpoint="messages").text == "now commit it"


def test_system_prompts_are_never_read_as_human() -> None:
    body = {"model": "m", "messages": [{"role": "system", "content": "debug code"}]}
    assert read(body).text == ""


def test_a_title_request_of_open_webui_has_no_words_of_a_person() -> None:
    text = "### Task:\nGenerate a concise title.\n<chat_history>\nUSER: debug\n</chat_history>"
    assert read(chat(text)).text == ""


CLEANED = [
    ("plain words", "plain words"),
    ("a < b and b > c", "a < b and b > c"),
    ("<system-reminder>code</system-reminder>", ""),
    ("x <system-reminder>code</system-reminder> y", "x  y"),
    ("what is <system-reminder> for?", "what is <system-reminder> for?"),
    ("<task>fix it</task>", "fix it"),
    ("<task>fix it", "fix it"),
    ("explain <task>this</task> element", "explain this element"),
    ("<task>fix</task>\n# TODO LIST UPDATE REQUIRED - debug", "fix"),
    ('<user_input mode="act">\ndo\n</user_input>', "do"),
    ('<file_content path="a"/>words', "words"),
    ("<tasks>not a wrapper</tasks>", "<tasks>not a wrapper</tasks>"),
    ("words\n\n# *SEARCH/REPLACE block* Rules:\n\ncode", "words"),
    (
        "words\nTo suggest changes to a file you MUST return the entire content of the updated"
        " file.",
        "words",
    ),
    ("# Heading of mine\ntext", "# Heading of mine\ntext"),
    ("[read_file for 'a.py'] Result:\ncode", ""),
    ("[apply_diff for 'a'] Result:\n<feedback>no, use tabs</feedback>", "no, use tabs"),
    ("[note] hello", "[note] hello"),
    ("<command-name>/x</command-name><command-args>my args</command-args>", "my args"),
    ("</system-reminder>words", "</system-reminder>words"),
]


@pytest.mark.parametrize(("text", "words"), CLEANED)
def test_wrappers_are_cut_and_opened(text: str, words: str) -> None:
    assert WRAPPERS.words_in(text) == words


@pytest.mark.parametrize("tag", CUT)
def test_every_cut_tag_is_cut(tag: str) -> None:
    assert WRAPPERS.words_in(f"a<{tag} x='1'>code</{tag}>b") == "ab"


@pytest.mark.parametrize("tag", OPEN)
def test_every_open_tag_is_opened(tag: str) -> None:
    assert WRAPPERS.words_in(f"<{tag}>\nwords\n</{tag}>\nnoise of the tool") == "words"


def test_settings_add_wrappers() -> None:
    reader = Reader(Reading(wrappers_cut=("my_noise",), wrappers_open=("my_words", "context")))
    text = "<my_noise>code</my_noise><my_words>hello</my_words><context>there</context>"
    assert read(chat(text), reader=reader).text == "hello\nthere"


def test_many_unclosed_tags_cost_linear_time() -> None:
    text = "<system-reminder><task><file_content>" * 100_000
    assert "system-reminder" in WRAPPERS.words_in(text)


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_text_is_cleaned_without_trouble(text: str) -> None:
    words = WRAPPERS.words_in(text)
    assert len(words) <= len(text)
    assert WRAPPERS.words_in(f"<system-reminder>{'x' * 5}</system-reminder>") == ""


@given(st.text(max_size=200), st.integers(1, 120))
def test_the_cap_keeps_head_and_tail(text: str, limit: int) -> None:
    capped = cap(text, limit)
    assert len(capped) <= max(limit, 0)
    if len(text) <= limit:
        assert capped == text
    else:
        head, tail = (limit - 1) // 2, limit - 1 - (limit - 1) // 2
        assert capped.startswith(text[:head])
        assert capped.endswith(text[len(text) - tail :] if tail else "")


def test_ten_thousand_characters_are_capped_by_default() -> None:
    text = read(chat("a" * 5_000 + "b" * 5_000)).text
    assert len(text) == 4_096
    assert text[0] == "a"
    assert text[-1] == "b"


PROMPTS: list[tuple[Any, str]] = [
    ("say hi", "say hi"),
    (["one", "two"], "one\ntwo"),
    ([1, 2, 3], ""),
    ([[1, 2], [3]], ""),
    ([], ""),
]


@pytest.mark.parametrize(("prompt", "text"), PROMPTS)
def test_prompts_of_every_form_are_read(prompt: Any, text: str) -> None:
    assert read({"model": "m", "prompt": prompt}, endpoint="completions").text == text
    assert read({"model": "m", "input": prompt}, endpoint="embeddings").text == text


RESPONSES_INPUTS: list[tuple[Any, str]] = [
    ("hello", "hello"),
    ([{"role": "user", "content": "hello"}], "hello"),
    ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}], "a"),
    ([], ""),
]


@pytest.mark.parametrize(("value", "text"), RESPONSES_INPUTS)
def test_responses_input_of_every_form_is_read(value: Any, text: str) -> None:
    assert read({"model": "m", "input": value}, endpoint="responses").text == text
    assert read({"model": "m"}, endpoint="responses").text == ""


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"])},
        optional={
            "content": st.text(max_size=20)
            | st.lists(
                st.fixed_dictionaries(
                    {"type": st.just("text"), "text": st.text(max_size=12)},
                    optional={"role": st.just("user"), "nested": st.just([{"role": "x"}])},
                ),
                max_size=3,
            )
            | st.none(),
            "extra": st.just([{"role": "user", "content": '{"role":"user"}'}]),
        },
    ),
    max_size=6,
)


@settings(max_examples=300, deadline=None)
@given(messages=MESSAGES, shuffled=st.booleans(), indent=st.sampled_from([None, 2]))
def test_walking_back_gives_the_messages_reversed(
    messages: list[dict[str, Any]], shuffled: bool, indent: int | None
) -> None:
    if shuffled:
        messages = [dict(sorted(m.items())) if i % 2 else m for i, m in enumerate(messages)]
    raw = msgspec.json.decode(json.dumps(messages, indent=indent), type=msgspec.Raw)
    walked = list(messages_backwards(memoryview(raw)))
    assert [m.role for m in walked] == [m["role"] for m in reversed(messages)]
    contents = [bytes(m.content) for m in walked]
    assert [json.loads(c) if c else None for c in contents] == [
        m.get("content") for m in reversed(messages)
    ]


def test_texts_on_other_parts_are_built_on_demand() -> None:
    request = read(dumps(codex(3_000)), endpoint="responses")
    assert request.text_on("human") == ASK
    assert "debug" in request.text_on("system")
    assert request.text_on("tools").startswith("tool_0\n")
    assert ASK not in request.text_on("system")
    small = read(chat("hi there", tools=[{"type": "function", "function": {"name": "look"}}]))
    assert small.text_on("all") == "hi there\nlook"
    assert small.text_on("tools") == "look"


def test_texts_on_other_parts_are_capped() -> None:
    body = chat("hi")
    body["messages"].insert(0, {"role": "system", "content": noise(50_000)})
    assert len(read(body).text_on("system")) == 4_096
