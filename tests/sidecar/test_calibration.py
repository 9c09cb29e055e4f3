"""Fitting thresholds and writing them without touching anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout_rules.decision import Verdict
from turnout_rules.model import Place, Route
from turnout_sidecar.calibration import (
    Fit,
    fit_shares,
    fit_thresholds,
    with_threshold,
    write_thresholds,
)
from turnout_sidecar.evaluation import Judged, Row, RowsError

RULES = """\
# a comment
routes:
  - name: code   # mine
    target: api/code
    examples:
      - threshold: is a word here
    # threshold: 0.1 in a comment
  - name: chat
    threshold: 0.9  # measured
    target: api/chat
"""


def judged(route: str | None, said: str, probability: float) -> Judged:
    return Judged(
        Row("text", route), Verdict(route=said, probability=probability, threshold=0.5), 1.0
    )


def test_a_threshold_is_put_where_wrong_answers_begin() -> None:
    rows = [judged("code", "code", 0.9 - i / 100) for i in range(10)]
    rows += [judged(None, "code", 0.4 - i / 100) for i in range(10)]
    (fit,) = fit_thresholds(rows)
    assert 0.4 <= fit.threshold <= 0.85
    assert fit.right >= 9


def test_a_handful_of_rows_fits_nothing() -> None:
    assert fit_thresholds([judged("code", "code", 0.9)] * 7) == []


def test_a_target_takes_the_share_that_was_asked_for() -> None:
    rows = [judged(None, "code", i / 100) for i in range(100)]
    fits = fit_shares(
        rows, {"api/code": 0.2}, {"api/code": ["code", "bugs"]}, {"code": 0.5, "bugs": 0.7}
    )
    assert [(f.route, f.taken, f.before) for f in fits] == [("bugs", 0, 0.7), ("code", 20, 0.5)]


def test_a_handful_of_texts_fits_no_share() -> None:
    rows = [judged(None, "code", 0.5)] * 7
    with pytest.raises(RowsError, match="7 texts"):
        fit_shares(rows, {"api/code": 0.2}, {"api/code": ["code"]}, {"code": 0.5})


def test_writing_changes_one_line_and_keeps_every_comment() -> None:
    changed = with_threshold(RULES, 3, 0.42)
    assert changed is not None
    assert changed.splitlines()[3] == "    threshold: 0.42"
    assert changed.replace("    threshold: 0.42\n", "") == RULES
    changed = with_threshold(RULES, 8, 0.42)
    assert changed == RULES.replace("threshold: 0.9  #", "threshold: 0.42  #")


def test_a_route_that_begins_with_a_list_gets_its_threshold_before_it() -> None:
    text = "routes:\n- examples:\n  - a\n  name: x\n"
    assert with_threshold(text, 2, 0.3) == (
        "routes:\n- threshold: 0.3\n  examples:\n  - a\n  name: x\n"
    )


def test_a_route_in_one_line_is_refused_not_rewritten() -> None:
    assert with_threshold("routes: [{name: a, target: b/c}]\n", 1, 0.3) is None


def test_line_endings_stay(tmp_path: Path) -> None:
    changed = with_threshold(RULES.replace("\n", "\r\n"), 3, 0.42)
    assert changed is not None and changed.count("\r\n") == changed.count("\n")


def test_files_go_back_when_the_rules_would_no_longer_load(tmp_path: Path) -> None:
    path = tmp_path / "routes.yaml"
    path.write_text(RULES, encoding="utf-8")
    route = Route(name="code", place=Place(str(path), 3, 5))
    fit = Fit(route="code", threshold=0.4, before=0.5, rows=9, taken=9, right=9)

    def broken() -> None:
        assert "0.4" in path.read_text(encoding="utf-8")
        raise ValueError("does not load")

    with pytest.raises(ValueError, match="does not load"):
        write_thresholds([route], [fit], broken)
    assert path.read_text(encoding="utf-8") == RULES
