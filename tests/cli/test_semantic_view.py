"""`explain --semantic` and `check --semantic`, with the real encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidecar.classifier_tables import fetched_models
from turnout_cli.main import main

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("fetched_models")]
__all__ = ["fetched_models"]

ROUTES = """
upstreams: {api: {base_url: "http://127.0.0.1:9/v1"}}
routes:
  - name: weather
    target: api/w
    examples: [will it rain tomorrow, how cold is it outside, 今天要不要带伞]
  - name: cooking
    target: api/c
    examples: [how long do I boil an egg, a recipe for tomato soup, 面包怎么烤%s]
  - {name: rest, match: [.*], target: api/r}
"""


def rules(folder: Path, more: str = "") -> str:
    folder.mkdir(exist_ok=True)
    (folder / "routes.yaml").write_text(ROUTES % more)
    return str(folder)


def test_explain_asks_the_classifier_and_shows_the_nearest_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["explain", "--rules", rules(tmp_path / "r"), "--semantic", "will it rain on Sunday"]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "settled   weather → api/w  [semantic]" in out
    assert "weather: “will it rain tomorrow”" in out
    assert main([*asked, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["route"], row["layer"]) == ("weather", "semantic")
    assert row["nearest"][0] | {"similarity": 0} == {
        "route": "weather",
        "text": "will it rain tomorrow",
        "similarity": 0,
    }


def test_check_tells_contradictions_and_on_demand_examples_in_the_wrong_route(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = rules(tmp_path / "a", ", Will it rain  TOMORROW")
    assert main(["check", copied]) == 0
    assert "is an example of weather and of cooking" in capsys.readouterr().out
    strayed = rules(tmp_path / "b", ", will it be raining tomorrow")
    assert main(["check", strayed]) == 0
    assert "warning" not in capsys.readouterr().out
    assert main(["check", "--semantic", strayed]) == 0
    assert "lies nearer to “will it rain tomorrow” (weather)" in capsys.readouterr().out


def test_without_a_classifier_both_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = rules(tmp_path / "r")
    (tmp_path / "r/turnout.yaml").write_text('classifier: {kind: "off"}\n')
    assert main(["explain", "--rules", folder, "--semantic", "hello"]) == 1
    assert "switched off" in capsys.readouterr().err
    assert main(["check", "--semantic", folder]) == 0
    assert "switched off" in capsys.readouterr().out
