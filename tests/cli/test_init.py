"""`turnout init`: starter rules that work as they are, and nothing overwritten."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

from turnout_cli.commands.init import PROFILES, fitted
from turnout_cli.main import main
from turnout_rules.loading import load_rules
from turnout_rules.probes import run_probes
from turnout_rules.starter import FILES, starter_files
from turnout_sidecar.profiles import profile_upstreams

ROOT = Path(__file__).parents[2]


def test_the_starter_rules_check_without_a_single_finding_and_meet_their_probes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    folder = tmp_path / "rules"
    assert main(["init", str(folder)]) == 0
    assert "turnout check" in capsys.readouterr().out
    assert main(["check", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith(f"{folder}: ok (4 files")
    rules = load_rules(folder)
    assert rules.warnings == ()
    assert all(o.is_met for o in run_probes(rules.table, rules.settings.reading, rules.probes))


def test_starter_routes_go_to_the_local_model_and_the_rest_passes(tmp_path: Path) -> None:
    main(["init", str(tmp_path)])
    table = load_rules(tmp_path).table
    targets = {route.name: route.targets[0][0] for route in table.routes}
    default = targets.pop("default")
    assert default == "pass"
    assert set(targets.values()) == {"local/smollm2"}
    assert {"code", "translation", "summary", "chat"} == set(targets)
    assert {r.name for r in table.semantic_routes} == {*targets, "default"}


def test_files_that_are_there_stay_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "routes.yaml").write_text("routes: []\n")
    assert main(["init", str(tmp_path)]) == 1
    assert "routes.yaml" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["routes.yaml"]
    assert main(["init", "--force", str(tmp_path)]) == 0
    assert "smollm2" in (tmp_path / "routes.yaml").read_text()


def test_with_other_upstreams_the_starter_routes_go_to_what_there_is() -> None:
    upstreams = "upstreams:\n  api: {base_url: https://x/v1, models: [big]}\n"
    upstreams += "  gpu: {engine: vllm, models: {main: {model_path: ./m}}}\n"
    files = fitted(starter_files(), upstreams)
    assert "target: gpu/main" in files["routes.yaml"]
    assert "local/smollm2" not in files["routes.yaml"] + files["scripts/pick.py"]
    own = fitted(starter_files(), starter_files()["upstreams.yaml"])
    assert own == starter_files()


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_checks_and_passes_its_probes(tmp_path: Path, profile: str) -> None:
    assert main(["init", "--profile", profile, str(tmp_path)]) == 0
    assert main(["check", str(tmp_path)]) == 0
    assert main(["test", str(tmp_path)]) == 0


def test_profiles_are_safe_on_a_workstation() -> None:
    for name in PROFILES:
        for upstream in yaml.safe_load(profile_upstreams(name))["upstreams"].values():
            for model in (upstream["models"] if "engine" in upstream else {}).values():
                assert model["max_num_seqs"] <= 4
                assert model.get("gpu_memory_utilization", 0.0) <= 0.85
                assert model["max_model_len"] <= 8192
    shares = yaml.safe_load(profile_upstreams("full"))["upstreams"]["vllm"]["models"].values()
    assert sum(model["gpu_memory_utilization"] for model in shares) < 0.9


def test_the_example_script_loads_and_chooses(tmp_path: Path) -> None:
    main(["init", str(tmp_path)])
    routes = tmp_path / "routes.yaml"
    added = "routes:\n  - {name: by_script, match: [hello], priority: 99, "
    added += "script: scripts/pick.py, target: pass}\n"
    routes.write_text(routes.read_text().replace("routes:\n", added, 1))
    rules = load_rules(tmp_path)
    from turnout_rules.request import Request

    assert rules.table.decide(Request.from_text("hello you")).target == "local/smollm2"
    assert rules.scripts["scripts/pick.py"].errors == 0


def test_every_key_of_the_language_is_mentioned_in_the_starter_files(tmp_path: Path) -> None:
    from turnout_rules.probes import PROBE_KEYS
    from turnout_rules.schema import ROUTE_KEYS, WHEN_KEYS
    from turnout_rules.settings_loading import SECTIONS
    from turnout_rules.starter import starter_files
    from turnout_rules.upstream_schema import MODEL_KEYS, UPSTREAM_KEYS

    files = starter_files()
    for name, keys in (
        ("routes.yaml", {**ROUTE_KEYS, **WHEN_KEYS}),
        ("upstreams.yaml", {**UPSTREAM_KEYS, **MODEL_KEYS}),
        ("probes.yaml", PROBE_KEYS),
    ):
        assert [key for key in keys if key not in files[name]] == []
    for section, (keys, _) in SECTIONS.items():
        text = files["turnout.yaml"]
        assert [f"{section}.{key}" for key in keys if f"{key}:" not in text] == []


def test_the_wheel_carries_the_starter_rules() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {f"rules/{name}": f"turnout_rules/starter/{name}" for name in FILES}
    assert all((ROOT / source).is_file() for source in included)
