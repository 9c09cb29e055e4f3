"""`turnout.yaml` becomes settings; the older keys mean the same; mistakes have a place."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from language_folders import codes, write_folder
from turnout_rules.loading import read_folder
from turnout_rules.problems import RulesError
from turnout_rules.settings import Settings
from turnout_rules.settings_loading import SECTIONS, load_settings


def test_without_settings_the_defaults_count(tmp_path: Path) -> None:
    assert load_settings(write_folder(tmp_path, routes="routes: []\n")) == Settings()


def test_every_setting_has_a_key_and_every_key_a_setting() -> None:
    for section, (keys, struct) in SECTIONS.items():
        assert set(keys) == {f.name for f in msgspec.structs.fields(struct)}, section
    named = {f.name for f in msgspec.structs.fields(Settings)}
    assert named == {*SECTIONS, "observe"}


def test_settings_are_read(tmp_path: Path) -> None:
    settings = load_settings(
        write_folder(
            tmp_path,
            turnout="""\
            proxy: {port: 0, intercept: [api.example.com, "*.example.org"], keep_flows: 5}
            reading: {conversation: true, wrappers_cut: [my_tag], script_budget_ms: 5}
            sidecar: {default_timeout_ms: 250, keepalive_s: 2.5}
            classifier: {kind: off, threshold: 0.4}
            engines:
            observe: true
            """,
        )
    )
    assert settings.proxy.intercept == ("api.example.com", "*.example.org")
    assert (settings.proxy.port, settings.proxy.keep_flows) == (0, 5)
    assert settings.reading.conversation and settings.reading.wrappers_cut == ("my_tag",)
    assert settings.reading.script_budget_ms == 5.0
    assert (settings.sidecar.default_timeout_ms, settings.sidecar.keepalive_s) == (250, 2.5)
    assert (settings.classifier.kind, settings.classifier.threshold) == ("off", 0.4)
    assert settings.observe is True


def test_the_older_keys_mean_the_same(tmp_path: Path) -> None:
    settings = load_settings(
        write_folder(
            tmp_path,
            config="""\
            router: {port: 9999, default_timeout_ms: 300}
            router_timeout_ms: 7000
            use_local_classifier: false
            """,
        )
    )
    assert settings.proxy.port == 9999
    assert settings.sidecar.default_timeout_ms == 300
    assert settings.sidecar.router_timeout_ms == 7_000
    assert settings.classifier.kind == "off"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("proxy: {prot: 1}", "unknown-key"),
        ("proxi: {port: 1}", "unknown-key"),
        ("proxy: {port: 70000}", "out-of-range"),
        ("proxy: {port: eighty}", "wrong-type"),
        ("proxy: 8080", "wrong-type"),
        ("proxy: {intercept: ['https://x/']}", "bad-host"),
        ("proxy: {listen_host: 0.0.0.0}", "open-proxy"),
        ("proxy: {auth: 'me:secret'}", "bad-value"),
        ("proxy: {origin: api.openai.com}", "bad-url"),
        ("classifier: {kind: magic}", "unknown-value"),
        ("classifier: {threshold: 3}", "out-of-range"),
        ("sidecar: {default_timeout_ms: 0}", "out-of-range"),
        ("observe: sometimes", "wrong-type"),
        ("router: {port: 1}\nproxy: {port: 2}", "duplicate-setting"),
        ("router_timeout_ms: 5000\nsidecar: {router_timeout_ms: 6000}", "duplicate-setting"),
        ("inference: {backend: magic}", "unknown-value"),
        ("inference: {backend: vllm}", "missing-key"),
    ],
)
def test_a_wrong_setting_is_found(tmp_path: Path, text: str, code: str) -> None:
    folder = write_folder(tmp_path, turnout=text)
    assert code in codes(read_folder(folder))
    with pytest.raises(RulesError):
        load_settings(folder)


def test_a_typing_mistake_gets_a_did_you_mean(tmp_path: Path) -> None:
    (problem,) = read_folder(write_folder(tmp_path, turnout="proxy: {prot: 1}\n")).problems
    assert (problem.line, problem.column) == (1, 9)
    assert problem.remedy == "did you mean `port`?"


def test_a_proxy_open_to_others_with_a_password_is_accepted(tmp_path: Path) -> None:
    text = "proxy: {listen_host: 0.0.0.0, auth: TURNOUT_AUTH}\n"
    assert load_settings(write_folder(tmp_path, turnout=text)).proxy.auth == "TURNOUT_AUTH"
