"""The figures of an evaluation as one HTML page with its plots drawn in SVG; needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from turnout_sidecar.evaluation import Figures, Judged, curve

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;
background:Canvas;color:CanvasText;color-scheme:light dark}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .7rem;text-align:left;
border-bottom:1px solid color-mix(in srgb,CanvasText 15%,transparent)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
figure{display:inline-block;margin:0 1.5rem 1rem 0}figcaption{max-width:19rem;opacity:.75}
svg text{font-size:11px;fill:currentColor}.axis{stroke:currentColor;opacity:.4}
.line{fill:none;stroke:#2b6cb0;stroke-width:2}.in{fill:#2b6cb0;opacity:.7}
.out{fill:#c05621;opacity:.7}.ideal{stroke:currentColor;stroke-dasharray:4 4;opacity:.4}
"""
_SIDE, _PAD = 260, 34


def page(title: str, figures: Figures, judged: Sequence[Judged], default: str) -> str:
    """The whole page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>",
        _summary(figures),
        _reliability(judged),
        _coverage(judged),
        _scopes(judged),
        _routes(figures),
        _confusions(figures, default),
    ]
    return "\n".join(parts) + "\n"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.1f} %"


def _summary(f: Figures) -> str:
    rows = {
        "Rows (out of scope)": f"{f.rows} ({f.out_of_scope_rows})",
        "Accuracy, threshold applied": _percent(f.accuracy),
        "Top route right, in scope": _percent(f.in_scope_accuracy),
        "Out-of-scope AUROC": "–" if f.oos_auroc is None else f"{f.oos_auroc:.3f}",
        "Coverage at 95 % precision": _percent(f.coverage_at_95),
        "Expected calibration error": f"{f.ece:.3f}",
        "Threshold": f"{f.threshold:.3f}",
        "Latency p50 / p99": f"{f.p50_ms:.1f} / {f.p99_ms:.1f} ms",
    }
    cells = "".join(f"<tr><th>{escape(k)}<td class=n>{escape(v)}" for k, v in rows.items())
    return f"<table>{cells}</table>"


def _frame(inner: str, caption: str, across: str, up: str) -> str:
    full = _SIDE + 2 * _PAD
    axes = (
        f"<path class=axis fill=none d='M{_PAD} {_PAD}V{_PAD + _SIDE}H{_PAD + _SIDE}'/>"
        f"<text x={_PAD + _SIDE} y={full - 14} text-anchor=end>{across} →</text>"
        f"<text x={_PAD} y={_PAD - 10}>↑ {up}</text>"
        f"<text x={_PAD} y={full - 14}>0</text><text x=8 y={_PAD + 8}>1</text>"
    )
    label = escape(caption)
    return (
        f"<figure><svg role=img aria-label='{label}' width={full} height={full} "
        f"viewBox='0 0 {full} {full}'>{axes}{inner}</svg><figcaption>{label}</figcaption></figure>"
    )


def _point(x: float, y: float) -> str:
    return f"{_PAD + x * _SIDE:.1f} {_PAD + (1 - y) * _SIDE:.1f}"


def _reliability(judged: Sequence[Judged]) -> str:
    p = np.array([j.verdict.probability for j in judged])
    right = np.array([j.row.route is not None and j.verdict.route == j.row.route for j in judged])
    bins = np.minimum((p * 10).astype(int), 9)
    dots = []
    for b in range(10):
        if (rows := bins == b).any():
            x, y = _point(float(p[rows].mean()), float(right[rows].mean())).split()
            size = 2 + 8 * float(np.sqrt(rows.mean()))
            dots.append(f"<circle class=in cx={x} cy={y} r={size:.1f} />")
    ideal = f"<path class=ideal d='M{_point(0, 0)}L{_point(1, 1)}'/>"
    caption = "Reliability: share of right answers against probability; the dashed line is ideal."
    return _frame(ideal + "".join(dots), caption, "probability", "share right")


def _coverage(judged: Sequence[Judged]) -> str:
    p = np.array([j.verdict.probability for j in judged])
    right = np.array([j.row.route is not None and j.verdict.route == j.row.route for j in judged])
    covered, reached = curve(p, right)
    step = max(1, len(covered) // 300)
    points = [_point(float(c), float(r)) for c, r in zip(covered, reached, strict=True)][::step]
    line = f"<path class=line d='M{'L'.join(points)}'/>"
    mark = f"<path class=ideal d='M{_point(0, 0.95)}L{_point(1, 0.95)}'/>"
    return _frame(
        mark + line, "Precision against coverage; dashed: 95 %.", "share taken", "precision"
    )


def _scopes(judged: Sequence[Judged]) -> str:
    bars = []
    for name, wants_inside in (("in", True), ("out", False)):
        fits = [
            1 - j.verdict.out_of_scope for j in judged if (j.row.route is not None) == wants_inside
        ]
        counts = np.histogram(fits, bins=20, range=(0, 1))[0] if fits else np.zeros(20)
        for i, share in enumerate(counts / max(1, counts.max())):
            x, y = _point(i / 20 + (0 if wants_inside else 0.022), float(share)).split()
            height = _SIDE * float(share)
            bars.append(f"<rect class={name} x={x} y={y} width=5 height={height:.1f} />")
    caption = "Rows by how well they fit some route: in scope blue, out of scope orange."
    return _frame("".join(bars), caption, "fits a route", "rows")


def _routes(figures: Figures) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}<td class=n>{r.rows}<td class=n>{_percent(r.precision)}"
        f"<td class=n>{_percent(r.recall)}"
        for name, r in figures.routes.items()
    )
    head = "<tr><th>Route<th class=n>Rows<th class=n>Precision<th class=n>Recall"
    return f"<h2>Routes</h2><table>{head}{rows}</table>"


def _confusions(figures: Figures, default: str) -> str:
    rows = "".join(
        f"<tr><td>{escape(c.route or default)}<td>{escape(c.taken or default)}"
        f"<td class=n>{c.rows}<td>{escape(c.example[:120])}"
        for c in figures.confusions
    )
    head = "<tr><th>Belongs to<th>Went to<th class=n>Rows<th>For example"
    return f"<h2>Confused</h2><table>{head}{rows}</table>" if rows else ""
