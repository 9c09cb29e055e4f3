"""A folder of rule files becomes rules: merging, the older configuration, versions, speed."""

from __future__ import annotations

import os
import random
import stat
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from language_folders import (
    ARTICLE_CONFIG,
    ARTICLE_ROUTES,
    UPSTREAMS,
    codes,
    read_routes_text,
    write_folder,
)
from turnout_rules import contents
from turnout_rules.loading import find_rules_folder, load_rules, read_folder
from turnout_rules.problems import RulesError
from turnout_rules.request import Request


def test_the_articles_files_load_as_they_stand(tmp_path: Path) -> None:
    rules = load_rules(write_folder(tmp_path, routes=ARTICLE_ROUTES, config=ARTICLE_CONFIG))
    assert rules.settings.proxy.port == 8080
    assert rules.settings.sidecar.default_timeout_ms == 500
    vllm, api = rules.table.upstreams["vllm"], rules.table.upstreams["api"]
    assert (vllm.base_url, vllm.max_concurrency) == ("http://127.0.0.1:8000/v1", 4)
    assert (api.base_url, api.api_key_env) == ("https://api.openai.com/v1", "OPENAI_API_KEY")
    assert [p.code for p in rules.warnings] == ["inference-url-wins", "implicit-upstream"]
    targets = {
        text: rules.table.decide(Request.from_text(text)).target
        for text in ("请把这段翻译成英文", "帮我debug这个函数", "你好今天天气如何")
    }
    assert list(targets.values()) == [
        "api/translate-model",
        "vllm/code-model",
        "vllm/general-model",
    ]


def test_the_articles_routes_alone_take_vllm_to_be_on_its_usual_port(tmp_path: Path) -> None:
    rules = load_rules(write_folder(tmp_path, routes=ARTICLE_ROUTES))
    assert rules.table.upstreams["vllm"].base_url == "http://127.0.0.1:8000/v1"
    assert [p.code for p in rules.warnings] == ["implicit-upstream", "implicit-upstream"]


def test_with_upstreams_written_down_an_unknown_one_is_an_error(tmp_path: Path) -> None:
    read = read_routes_text(tmp_path, ARTICLE_ROUTES, "upstreams: {local: {base_url: http://x}}\n")
    assert codes(read) == ["unknown-target"] * 3


def test_inference_without_a_url_is_an_engine_of_ours(tmp_path: Path) -> None:
    config = ARTICLE_CONFIG.replace("  vllm_url: http://127.0.0.1:8000/v1\n", "")
    rules = load_rules(write_folder(tmp_path, routes=ARTICLE_ROUTES, config=config))
    vllm = rules.table.upstreams["vllm"]
    assert vllm.is_managed
    assert {m.model_path for m in vllm.models.values()} == {"./models/qwen7b-int4"}
    assert set(vllm.models) == {"code-model", "general-model"}
    assert vllm.models["code-model"].max_num_seqs == 4
    assert "engine-twice" in [p.code for p in rules.warnings]


def test_files_merge_in_the_order_of_their_names(tmp_path: Path) -> None:
    row = "routes:\n- {{name: {0}, match: [{0}], target: api/m}}\n"
    folder = write_folder(
        tmp_path, b=row.format("bb"), a=row.format("aa"), upstreams=UPSTREAMS, z="probes: []\n"
    )
    (folder / "c.yml").write_text(row.format("cc"))
    (folder / ".hidden.yaml").write_text("{{{{")
    (folder / "notes.txt").write_text("{{{{")
    read = read_folder(folder)
    assert read.problems == []
    assert [(r.name, r.order) for r in read.routes] == [("aa", 0), ("bb", 1), ("cc", 2)]


def test_an_upstream_in_two_files_is_an_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, a=UPSTREAMS, b=UPSTREAMS)
    assert codes(read_folder(folder)) == ["duplicate-upstream"] * 2


def test_a_folder_without_rule_files_says_how_to_begin(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RulesError, match="turnout init"):
            load_rules(folder)


def test_an_unreadable_file_is_a_problem_and_the_others_are_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, routes="routes:\n- {name: a b}\n")
    (folder / "x.yaml").mkdir()
    (folder / "y.yaml").symlink_to(folder / "gone")
    assert codes(read_folder(folder)).count("unreadable-file") == 2
    assert "bad-value" in codes(read_folder(folder))


def test_pipes_devices_and_huge_files_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path, routes="routes:\n- {name: a, match: [x], target: up/m}\n")
    os.mkfifo(folder / "pipe.yaml")
    (folder / "zero.yaml").symlink_to("/dev/zero")
    monkeypatch.setattr(contents, "MAX_RULE_FILE_BYTES", 1024)
    (folder / "huge.yaml").write_text("#" * 1025)
    found = read_folder(folder).problems
    assert {(Path(p.file).name, p.message) for p in found} == {
        ("pipe.yaml", "cannot be read: it is no regular file"),
        ("zero.yaml", "cannot be read: it is no regular file"),
        ("huge.yaml", "cannot be read: it is larger than 1024 bytes"),
    }, "and what the files say about each other is not guessed at"


def test_what_is_written_aside_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with contents.written_aside(path) as file:
        file.write(b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), contents.written_aside(path) as file:
        file.write(b"tw")
        raise ZeroDivisionError
    with contents.written_aside(path) as file:
        file.write(b"three")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"three", 0o640)
    assert list(tmp_path.iterdir()) == [path]


def test_the_version_tells_contents_apart(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, routes="routes: []\n", upstreams=UPSTREAMS)
    first = read_folder(folder).version
    assert read_folder(folder).version == first
    (folder / "routes.yaml").write_text("routes: []  # note\n")
    assert read_folder(folder).version != first


def test_errors_come_before_warnings_in_file_order(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path,
        a="routes:\n- {name: a, match: [x], target: api/m}\n- {name: a b, target: api/m}\n",
        b="upstreams: {api: {}}\n",
    )
    with pytest.raises(RulesError) as caught:
        load_rules(folder)
    found = [(Path(p.file).name, p.severity) for p in caught.value.problems]
    assert found == [("a.yaml", "error"), ("b.yaml", "error"), ("a.yaml", "warning")]


def test_the_folder_is_the_named_one_then_rules_then_the_persons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURNOUT_CONFIG_DIR", str(tmp_path / "own"))
    assert find_rules_folder(Path("x")) == Path("x")
    assert find_rules_folder(None) == tmp_path / "own"
    (tmp_path / "rules").mkdir()
    assert find_rules_folder(None) == tmp_path / "own"
    (tmp_path / "rules" / "routes.yaml").write_text("routes: []\n")
    assert find_rules_folder(None) == Path("rules")


def test_ten_thousand_routes_load_in_under_two_seconds(tmp_path: Path) -> None:
    rows = "".join(
        f"- name: route_{n}\n  match: [word{n}a, 词{n}, 'prefix:start{n}', key{n}*, 'many {n}']\n"
        f"  priority: {n % 50}\n  target: api/model-{n % 7}\n"
        for n in range(10_000)
    )
    folder = write_folder(tmp_path, routes=f"routes:\n{rows}", upstreams=UPSTREAMS)
    best = 99.0
    for _ in range(3):  # a busy neighbour may slow one of them
        started = time.process_time()
        rules = load_rules(folder)
        best = min(best, time.process_time() - started)
    assert len(rules.table.routes) == 10_000
    assert best < 2.0


FRAGMENTS = [
    *("routes", "upstreams", "name", "match", "when", "target", "any", "set", "models", "api/m"),
    *(": ", ":", "- ", "\n", "\n  ", "\n    ", "[", "]", "{", "}", ",", "*", "&a", "*a", "<<", "~"),
    *("'", '"', "re:", "prefix:", ".*", "\\", "#", "|\n", ">\n", "!t ", "翻译", "\t", "1", "true"),
    *("x-a", "probes", "proxy", "inference", "router", "model_path", "script", "scripts/a.py"),
    *("base_url", "http://x/v1", "engine", "vllm", "{1}", "\u200b", "fallback", "\x85"),
]


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join))
def test_any_yaml_like_text_loads_or_raises_rules_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "routes.yaml").write_text(text, "utf-8")
    try:
        load_rules(tmp_path)
    except RulesError as error:
        assert any(p.severity == "error" for p in error.problems)


def test_a_starter_with_any_line_damaged_loads_or_raises_rules_error(tmp_path: Path) -> None:
    from turnout_rules.starter import starter_files

    chance = random.Random(7)
    originals = {n: t for n, t in starter_files().items() if n.endswith(".yaml")}
    for _ in range(150):
        for name, text in originals.items():
            lines = text.splitlines()
            for _ in range(chance.choice((0, 1, 2))):
                where = chance.randrange(len(lines))
                line = lines[where]
                cut = chance.randrange(len(line) + 1)
                lines[where] = chance.choice(
                    (line[:cut], " " + line, line[:cut] + "}" + line[cut:], "", line + ":")
                )
            (tmp_path / name).write_text("\n".join(lines), "utf-8")
        try:
            load_rules(tmp_path)
        except RulesError as error:
            assert any(p.severity == "error" for p in error.problems)


def test_a_file_that_cannot_be_parsed_is_the_only_news(tmp_path: Path) -> None:
    write_folder(
        tmp_path,
        routes="routes:\n  - {name: code, match: [code], target: api/m\n",
        more="routes:\n  - {name: x, match: [x], target: nowhere/m}\n",
        probes="probes:\n  - {text: code, route: code}\n",
    )
    with pytest.raises(RulesError) as error:
        load_rules(tmp_path)
    assert [problem.file for problem in error.value.problems] == [str(tmp_path / "routes.yaml")]
