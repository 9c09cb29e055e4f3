"""What an engine finds in its environment: what it needs, and no secret of the router's."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from engine_kit import chat, fake_model, refusal, running, status_of, target_of, upstream_of
from proxy_kit import write_rules
from turnout_rules.credentials import secret_variables
from turnout_rules.loading import load_rules
from turnout_rules.model import Place, Upstream
from turnout_rules.settings import Classifier, Proxy, Settings
from turnout_sidecar.engines.environment import engine_environment

NEEDED = {
    "CUDA_VISIBLE_DEVICES": "0",
    "HF_HOME": "/models",
    "LC_ALL": "C.UTF-8",
    "LD_LIBRARY_PATH": "/opt/lib",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "OMP_NUM_THREADS": "3",
    "PYTHONPATH": "",
    "TMPDIR": "/tmp",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_ATTENTION_BACKEND": "FLASH_ATTN",
}
SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-1",
    "AWS_SECRET_ACCESS_KEY": "aws",
    "GITHUB_TOKEN": "gh",
    "HF_INFERENCE": "named by the rules as a key",
    "HF_TOKEN": "hf_1",
    "HTTPS_PROXY": "http://user:password@company:3128",
    "LLAMA_API_KEY": "llama",
    "OPENAI_API_KEY": "sk-1",
    "SOME_PASSWORD": "p",
    "TURNOUT_PROXY_AUTH": "user:password",
    "TURNOUT_SIDECAR_TOKEN": "token",
    "VLLM_API_KEY": "vllm",
    "WHATEVER": "unknown",
}


async def test_a_running_engine_has_none_of_the_routers_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (NEEDED | SECRETS).items():
        monkeypatch.setenv(name, value)
    env = {"OWN": "as written", "HF_TOKEN": "${HF_TOKEN}", "KEPT": "$${HOME} $HOME ${NOT_SET:-x y}"}
    local = upstream_of(fake_model("a", env=env))
    remote = Upstream(name="remote", base_url="https://api.example/v1", api_key_env="HF_INFERENCE")
    async with running(tmp_path, local, remote) as backends:
        await chat(backends, target_of(local, "a"))
        found = psutil.Process(status_of(backends, "local/a").pid or 0).environ()
    assert {name: found.get(name) for name in NEEDED} == NEEDED
    handed_on = {"HF_TOKEN": "hf_1"}
    assert {name: found[name] for name in SECRETS if name in found} == handed_on
    assert found["OWN"] == "as written"
    assert found["KEPT"] == "${HOME} $HOME x y"


def test_variables_that_the_rules_name_as_secrets_are_withheld_whatever_they_are_called() -> None:
    remote = Upstream(name="r", base_url="https://api.example/v1", api_key_env="CUDA_ONE")
    settings = Settings(proxy=Proxy(auth="LC_TWO"), classifier=Classifier(api_key_env="HF_THREE"))
    withheld = secret_variables({"r": remote}, settings)
    environ = dict.fromkeys(("CUDA_ONE", "LC_TWO", "HF_THREE", "HF_FOUR"), "x")
    assert engine_environment(environ, withheld) == {"HF_FOUR": "x"}


async def test_an_unset_variable_is_named_with_its_place_and_the_value_is_not(
    tmp_path: Path,
) -> None:
    env = {"HF_TOKEN": "hidden-part ${SURELY_NOT_SET}"}
    model = fake_model("a", env=env, place=Place("rules/upstreams.yaml", 4, 7))
    local = upstream_of(model)
    async with running(tmp_path, local) as backends:
        refused = await refusal(chat(backends, target_of(local, "a")))
    assert (refused.status, refused.code) == (503, "engine_failed")
    assert "rules/upstreams.yaml:4" in refused.message
    assert "HF_TOKEN in `env:` needs SURELY_NOT_SET" in refused.message
    assert "hidden-part" not in refused.message


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ('"${}"', "bad-value"),
        ('"${1X}"', "bad-value"),
        ('"${X"', "bad-value"),
        ('"${X:-${Y}}"', "bad-value"),
        ('"${X:?must}"', "bad-value"),
        ('"a $${b"', "key-in-rules"),
        ('"$X {y} $"', "key-in-rules"),
        ('"${X:-a b}"', None),
        ("hf_written", "key-in-rules"),
    ],
)
def test_a_reference_that_is_none_has_its_place(
    tmp_path: Path, value: str, code: str | None
) -> None:
    from turnout_cli.commands.check import check

    folder = write_rules(
        tmp_path,
        routes="routes:\n  - {name: r, match: [.*], target: local/m}\n",
        upstreams="upstreams:\n  local:\n    engine: command\n    models:\n      m:\n"
        f"        command: [{sys.executable}, '{{port}}']\n        env:\n"
        f"          HF_TOKEN: {value}\n",
    )
    problems, _ = check(folder)
    found = [(p.code, p.line) for p in problems if p.code in ("bad-value", "key-in-rules")]
    assert found == ([(code, 8)] if code else [])


def test_check_names_a_variable_that_is_not_set(tmp_path: Path) -> None:
    from turnout_cli.commands.check import check

    folder = write_rules(
        tmp_path,
        routes="routes:\n  - {name: r, match: [.*], target: local/m}\n",
        upstreams="upstreams:\n  local:\n    engine: command\n    models:\n      m:\n"
        f"        command: [{sys.executable}, '{{port}}']\n"
        "        env: {HF_TOKEN: '${SURELY_NOT_SET}'}\n",
    )
    load_rules(folder)
    problems, _ = check(folder)
    assert [(p.code, p.line, p.severity) for p in problems] == [("variable-not-set", 5, "warning")]
