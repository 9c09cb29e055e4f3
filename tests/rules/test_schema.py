"""What routes and upstreams may say, and what is said about what they may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from language_folders import UPSTREAMS, codes, read_routes_text, spots
from turnout_rules.model import Match, Place, Span
from turnout_rules.problems import Problem


def one_route(tmp_path: Path, keys: str, upstreams: str = UPSTREAMS) -> list[Problem]:
    read = read_routes_text(tmp_path, f"routes:\n- {{name: r, target: api/m, {keys}}}\n", upstreams)
    return read.problems


def test_every_key_of_a_route_is_read(tmp_path: Path) -> None:
    read = read_routes_text(
        tmp_path,
        """\
        routes:
          - name: full
            match: {any: [code, "re:a+b"], all: [xy*], none: ["prefix:no"], on: all}
            when:
              endpoint: chat
              model: [gpt-4*, o3]
              path: /v1/*
              header: {User-Agent: claude*}
              client: [10.0.0.0/8, "::1"]
              has: [tools]
              lacks: [image]
              input_tokens: {min: 10, max: 60_000}
              task: translate
              language: [zh]
            priority: -3
            target: {api/a: 90, local/small: 10}
            fallback: [api/b, pass]
            set: {temperature: 0.2, seed: 7, logit_bias: null, stop: [a, "1"], ok: true, user: yes!}
            headers: {X-Team: search}
            timeout_ms: 20000
            examples: [one, two]
            description: about
            threshold: 0.5
            observe: yes
          - {name: default, match: [.*], priority: -9, target: pass}
        """,
    )
    assert read.problems == []
    route, _ = read.routes
    assert route.match is not None and route.when is not None
    assert (route.match.any, route.match.all) == (("code", "re:a+b"), ("xy*",))
    assert (route.match.none, route.match.on) == (("prefix:no",), "all")
    assert route.when.header == (("user-agent", ("claude*",)),)
    assert route.when.input_tokens == Span(10, 60_000)
    assert route.when.client == ("10.0.0.0/8", "::1")
    assert route.targets == (("api/a", 90), ("local/small", 10))
    assert route.set == {
        "temperature": 0.2,
        "seed": 7,
        "logit_bias": None,
        "stop": ["a", "1"],
        "ok": True,
        "user": "yes!",
    }
    assert route.headers == {"x-team": "search"}
    assert (route.priority, route.timeout_ms, route.threshold) == (-3, 20_000, 0.5)
    assert route.observe is True
    assert route.place == Place(str(tmp_path / "routes.yaml"), 2, 5)
    assert route.match.places["code"].line == 3


def test_yaml_words_and_numbers_are_keywords_as_they_are_written(tmp_path: Path) -> None:
    text = (
        "routes:\n- {name: r, match: [on, yes, 404, 1.50, 0x1F, 2024-01-01, C#], target: api/m}\n"
    )
    read = read_routes_text(tmp_path, text)
    assert read.problems == []
    match = read.routes[0].match
    assert match is not None
    assert match.any == ("on", "yes", "404", "1.50", "0x1F", "2024-01-01", "C#")


def test_one_keyword_needs_no_list_and_x_keys_hold_anchors(tmp_path: Path) -> None:
    text = """\
    x-words: &words [a1, b1]
    x-base: &base {target: api/m, priority: 4}
    routes:
    - {<<: *base, name: r, match: *words}
    - {<<: *base, name: s, match: hello, priority: 5}
    """
    read = read_routes_text(tmp_path, text)
    assert read.problems == []
    assert [(r.match.any, r.priority) for r in read.routes if isinstance(r.match, Match)] == [
        (("a1", "b1"), 4),
        (("hello",), 5),
    ]


WRONG = [
    # (keys of a route, code)
    ("prioritty: 1", "unknown-key"),
    ("priority: high", "wrong-type"),
    ("priority: 1.5", "wrong-type"),
    ("priority: 99999999999", "out-of-range"),
    ("priority: ", "empty-value"),
    ("match: []", "empty-value"),
    ("match: [[a]]", "wrong-type"),
    ("match: [re: x]", "wrong-type"),
    ("match: [~]", "empty-value"),
    ("match: {any: [a], some: [b]}", "unknown-key"),
    ("match: {on: human}", "empty-value"),
    ("match: {any: [a], on: everything}", "unknown-value"),
    ("match: {none: [.*]}", "catch-all-misplaced"),
    ("match: ['re:']", "empty-value"),
    ("match: [!tag x]", "yaml-tag"),
    ('match: ["re:\\bx"]', "control-character"),
    ("match: !!python/object:os.system [a]", "yaml-tag"),
    ("when: [a]", "wrong-type"),
    ("when: {}", "empty-value"),
    ("when: {endpoint: chats}", "unknown-value"),
    ("when: {has: [vision]}", "unknown-value"),
    ("when: {client: 10.0.0.0/99}", "bad-cidr"),
    ("when: {client: 10.0.0.1/8}", "bad-cidr"),
    ("when: {input_tokens: 5}", "wrong-type"),
    ("when: {input_tokens: {min: 9, max: 3}}", "impossible-range"),
    ("when: {input_tokens: {}}", "empty-value"),
    ("when: {model: 'gpt[4'}", "bad-glob"),
    ("when: {path: v1/chat}", "bad-glob"),
    ("when: {header: {'a b': x}}", "bad-header"),
    ("when: {language: chinese}", "unknown-value"),
    ("fallback: [nowhere]", "bad-target"),
    ("set: {model: x}", "refused-field"),
    ("set: {stream: true}", "refused-field"),
    ("set: {a: .nan}", "wrong-type"),
    ("set: {a: yes}", "yaml-boolean"),
    ("headers: {Content-Length: 3}", "bad-header"),
    ("headers: {authorization: Bearer x}", "key-in-rules"),
    ("headers: {x-a: 翻译}", "bad-header"),
    ("timeout_ms: 0", "out-of-range"),
    ("threshold: 1.2", "out-of-range"),
    ("observe: maybe", "wrong-type"),
    ("message: hi", "unused-key"),
    ("script: ../x.py", "bad-script"),
    ("script: scripts/none.py", "missing-script"),
    ("name: r", "duplicate-key"),
]


@pytest.mark.parametrize(("keys", "code"), WRONG)
def test_a_wrong_value_of_a_route_is_found(tmp_path: Path, keys: str, code: str) -> None:
    keys = keys if "match" in keys or "when" in keys else f"match: [hello], {keys}"
    assert code in [p.code for p in one_route(tmp_path, keys)]


def test_a_typing_mistake_gets_a_did_you_mean(tmp_path: Path) -> None:
    (problem,) = one_route(tmp_path, "match: [hi], prioritty: 1")
    assert problem.remedy == "did you mean `priority`?"
    assert str(problem).endswith(
        "routes.yaml:2:41: error: unknown key in a route: `prioritty`; did you mean `priority`?"
    )


@pytest.mark.parametrize("name", ["a b", "翻译", "", "a/b", "auto", "pass", "x" * 65, "~"])
def test_names_that_cannot_travel_in_headers_are_refused(tmp_path: Path, name: str) -> None:
    text = f"routes:\n- {{name: '{name}', match: [hi], target: api/m}}\n"
    assert read_routes_text(tmp_path, text).problems[0].severity == "error"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("nowhere", "bad-target"),
        ("api/", "bad-target"),
        ("[api/a, api/b]", "wrong-type"),
        ("{api/a: 0, api/b: 0}", "zero-weights"),
        ("{api/a: much}", "wrong-type"),
        ("", "empty-value"),
    ],
)
def test_targets_that_are_none(tmp_path: Path, target: str, code: str) -> None:
    text = f"routes:\n- name: r\n  match: [hi]\n  target: {target}\n"
    assert code in codes(read_routes_text(tmp_path, text))


def test_all_mistakes_of_all_files_are_found_in_one_pass(tmp_path: Path) -> None:
    read = read_routes_text(
        tmp_path,
        "routes:\n- name: a b\n  target: api/m\n- name: c\n  mtach: [x]\n  target: apy/m\n",
        "upstreams:\n  api: {base_url: ftp://x}\n  b: {engine: vlm}\n  c: [\n",
    )
    found = spots(read)
    assert "routes.yaml:2:9 bad-value" in found
    assert "routes.yaml:5:3 unknown-key" in found
    assert any(spot.startswith("upstreams.yaml:5") for spot in found)


UPSTREAM_WRONG = [
    ("base_url: ftp://x", "bad-url"),
    ("base_url: https://u:p@x/v1", "key-in-rules"),
    ("base_url: https://api.example.com/v1/chat/completions", "bad-url"),
    ("base_url: 'http://x:99999/v1'", "bad-url"),
    ("api_key: sk-1234, base_url: https://x/v1", "key-in-rules"),
    ("api_key_env: sk-12-34, base_url: https://x/v1", "bad-value"),
    ("api_key_env: A, api_key_file: b, base_url: https://x/v1", "two-keys"),
    ("api_key_env: A, base_url: http://example.com/v1", "key-over-http"),
    ("headers: {a: b}", "missing-key"),
    ("engine: ray", "missing-key"),
    ("engine: vllm", "missing-key"),
    ("engine: vllm, base_url: http://x/v1, models: {a: {model_path: b}}", "engine-and-url"),
    ("engine: vllm, models: {a: {max_num_seqs: 2}}", "missing-key"),
    ("engine: command, models: {a: {model_path: b}}", "missing-key"),
    ("engine: vllm, models: {a: {model_path: b, gpu_memory_utilization: 60}}", "out-of-range"),
    ("engine: vllm, models: {a: {model_path: b, cpu_set: all}}", "bad-value"),
    ("base_url: https://x/v1, models: {a: {supports: [vision]}}", "unknown-value"),
    ("base_url: https://x/v1, models: {'a b': {}}", "bad-value"),
    ("base_url: https://x/v1, models: {a: {adjust: {samplng: drop}}}", "unknown-key"),
    ("base_url: https://x/v1, models: {a: {adjust: {sampling: gone}}}", "unknown-value"),
]


@pytest.mark.parametrize(("keys", "code"), UPSTREAM_WRONG)
def test_a_wrong_upstream_is_found(tmp_path: Path, keys: str, code: str) -> None:
    upstreams = f"upstreams:\n  x: {{{keys}}}\n"
    read = read_routes_text(tmp_path, "routes: []\n", upstreams)
    assert code in codes(read)


def test_a_key_over_http_to_this_machine_is_fine(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]"):
        upstreams = f"upstreams:\n  x: {{base_url: 'http://{host}:1/v1/', api_key_env: A}}\n"
        read = read_routes_text(tmp_path, "routes: []\n", upstreams)
        assert read.problems == []
        assert read.upstreams["x"].base_url == f"http://{host}:1/v1"


def test_models_may_be_a_list_names_or_mappings(tmp_path: Path) -> None:
    upstreams = """\
    upstreams:
      x: {base_url: https://x/v1, models: [a, b/c]}
      y:
        base_url: https://y/v1
        models:
          fast: gpt-4o-mini
          same:
          big: {model: org/big, context: 128000, price: {input: 0.15}, supports: [tools, chat]}
    """
    read = read_routes_text(tmp_path, "routes: []\n", upstreams)
    assert read.problems == []
    assert list(read.upstreams["x"].models) == ["a", "b/c"]
    models = read.upstreams["y"].models
    assert [m.upstream_model for m in models.values()] == ["gpt-4o-mini", "same", "org/big"]
    assert models["big"].supports == {"tools", "chat"}
