"""The figures of an evaluation, the rows it reads, the page it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sidecar.classifier_tables import ENGLISH, table_of
from turnout_rules.decision import Verdict
from turnout_sidecar.evaluation import (
    Judged,
    Row,
    RowsError,
    auroc,
    coverage,
    figures,
    read_rows,
)
from turnout_sidecar.evaluation_page import page


def judged(route: str | None, said: str, probability: float, outside: float = 0.1) -> Judged:
    verdict = Verdict(route=said, probability=probability, threshold=0.5, out_of_scope=outside)
    return Judged(Row("a text <b>", route), verdict, 2.0)


ROWS = [
    judged("code", "code", 0.9),
    judged("code", "code", 0.4),
    judged("code", "weather", 0.8),
    judged("weather", "weather", 0.7),
    judged(None, "weather", 0.2, 0.9),
    judged(None, "code", 0.6, 0.5),
]


def test_accuracy_counts_where_rows_end_and_in_scope_accuracy_the_top_route() -> None:
    found = figures(ROWS, 0.5)
    assert found.accuracy == pytest.approx(3 / 6, abs=1e-4)
    assert found.in_scope_accuracy == pytest.approx(3 / 4, abs=1e-4)
    assert found.oos_auroc == 1.0
    assert (found.rows, found.out_of_scope_rows) == (6, 2)
    assert found.routes["code"].precision == 0.5
    assert found.routes["code"].recall == pytest.approx(1 / 3, abs=1e-4)
    assert {(c.route, c.taken) for c in found.confusions} == {
        ("code", None),
        ("code", "weather"),
        (None, "code"),
    }


def test_auroc_counts_ties_half_and_is_unknown_without_both_kinds() -> None:
    assert auroc(np.array([0.5, 0.9]), np.array([0.5, 0.1])) == 0.875
    assert auroc(np.array([0.5]), np.zeros(0)) is None


def test_coverage_never_splits_rows_of_equal_probability() -> None:
    right = np.array([True, True, False, True])
    assert coverage(np.array([0.9, 0.8, 0.5, 0.5]), right, 0.95) == 0.5
    assert coverage(np.array([0.9, 0.9, 0.9, 0.9]), right, 0.95) == 0.0


def test_the_default_route_s_name_means_out_of_scope(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(
        '{"text": "a", "route": "code"}\n\n{"text": "b", "route": "fallback"}\n'
        '{"text": "c", "route": "oos"}\n',
        encoding="utf-8",
    )
    assert [row.route for row in read_rows(file, table_of(ENGLISH))] == ["code", None, None]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", ":1: not JSON"),
        ("[1]", ":1: a line must be"),
        ('{"route": "code"}', ":1: a line must be"),
        ('{"text": "a", "route": 3}', ":1: `route` must be"),
        ('{"text": "a", "route": "poetry"}', "no semantic route is called 'poetry'"),
        ("", "has no rows"),
    ],
)
def test_rows_that_cannot_be_used_are_named_with_their_line(
    tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(RowsError, match=message.replace("[", r"\[")):
        read_rows(file, table_of(ENGLISH))


def test_the_page_stands_alone_and_escapes_texts() -> None:
    html = page("Evaluation", figures(ROWS, 0.5), ROWS, "fallback")
    assert html.count("<svg") == 3
    assert "a text &lt;b&gt;" in html and "<b>" not in html
    assert "http" not in html.replace("http://www.w3.org", "")
