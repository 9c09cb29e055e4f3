"""What the decision log can teach: clusters of the default route's traffic, as rules to paste.

Reads the opt-in log, groups texts that mean the same, and words a YAML patch with examples and
keywords. Proposes only: a person names the route and decides. Secrets-looking texts are left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from turnout_rules.normalise import normalise
from turnout_rules.side_table import TASKS

Floats = npt.NDArray[np.float32]
MAX_TEXTS = 4_000
MAX_SHOWN_CHARS = 160
MAX_KEYWORDS = 4
MAX_CHINESE_CHARS = 6
MAX_KEYWORD_SOURCE_CHARS = 200
"""Keywords come from the beginning of a text: every run of Chinese in it is counted."""
LIKENESS = 0.45
"""Mean cosine from which texts count as one kind: above chance, below paraphrase."""
_SECRET = re.compile(
    r"(?i)(sk-[a-z0-9_-]{8,}|bearer\s+\S{8,}|api[_-]?key\s*[:=]|password|passwd|-----BEGIN|"
    r"[A-Za-z0-9+/_-]{40,}|[\w.+-]+@[\w-]+\.\w+)"
)
_WORD = re.compile(r"[a-z][a-z'+#.-]{2,}|[\u3400-\u9fff]{2,}")
_DULL_WORDS = """
the and for that this with you your are was what how can could would will please from have has not
but all any one get let give make need want about into out its it's i'm i'd use tell me my our their
them they she his her who when where why which there here just like
一个 请问 怎么 什么 可以 如何 这个 那个 我们 你们 他们 帮我 一下 是否 哪些 怎样
"""
_DULL = frozenset(_DULL_WORDS.split())
_PARTICLES = frozenset("的了吗呢吧啊着过把被给和与或在是")


class Entry(msgspec.Struct, frozen=True):
    """One line of the decision log, as far as it is used."""

    text: str
    layer: str = ""
    route: str | None = None
    task: str = ""

    @property
    def is_undecided(self) -> bool:
        """Whether only the default route took it, or nothing where there is none.

        A tool's side requests repeat the person's words: they say nothing new.
        """
        if self.task in TASKS:
            return False
        return self.layer == "default" or (self.layer == "pass" and self.route is None)


class Cluster(msgspec.Struct, frozen=True):
    """Texts of one kind, the most typical first."""

    texts: tuple[str, ...]
    size: int
    """How many requests, repetitions counted."""
    keywords: tuple[str, ...]
    nearest_route: str | None = None
    likeness: float = 0.0
    """Mean cosine between the cluster's texts and its middle."""


def log_files(path: Path) -> list[Path]:
    """The decision log's files that are there, the older first."""
    return [file for file in (path.with_name(path.name + ".1"), path) if file.is_file()]


def read_log(path: Path) -> list[Entry]:
    """The lines of a file that can be read; torn or foreign ones are skipped. Raises `OSError`."""
    entries = []
    decoder = msgspec.json.Decoder(Entry)
    with path.open("rb") as file:
        for line in file:
            try:
                entries.append(decoder.decode(line))
            except (msgspec.DecodeError, msgspec.ValidationError):
                continue
    return entries


def undecided(entries: Iterable[Entry]) -> list[tuple[str, int]]:
    """(text, how often) of what no route but the default took, most frequent first, no secrets."""
    counts: Counter[str] = Counter()
    shown: dict[str, str] = {}
    for entry in entries:
        text = " ".join(entry.text.split())
        if not entry.is_undecided or not text or _SECRET.search(text):
            continue
        plain = normalise(text)
        counts[plain] += 1
        shown.setdefault(plain, text)
    return [(shown[plain], count) for plain, count in counts.most_common(MAX_TEXTS)]


def clusters(
    texts: Sequence[tuple[str, int]], vectors: Floats, *, min_size: int = 3, most: int = 8
) -> list[Cluster]:
    """Groups of at least `min_size` different texts that are alike, the most requests first."""
    if not len(texts):
        return []
    groups = _grouped(vectors, np.array([count for _, count in texts]))
    background = Counter(word for text, _ in texts for word in set(words(text)))
    found = []
    for rows in groups:
        if len(rows) < min_size:
            continue
        size = sum(texts[i][1] for i in rows)
        middle = vectors[rows].mean(axis=0)
        likeness = vectors[rows] @ (middle / (np.linalg.norm(middle) + 1e-9))
        order = [rows[i] for i in np.argsort(-likeness)]
        chosen = tuple(texts[i][0] for i in order)
        keywords = _keywords([texts[i][0] for i in rows], background, len(texts))
        found.append(
            Cluster(texts=chosen, size=size, keywords=keywords, likeness=float(likeness.mean()))
        )
    return sorted(found, key=lambda c: -c.size)[:most]


def words(text: str) -> list[str]:
    """What may become a keyword: Latin words of 3 letters, runs of 2 to 6 Chinese characters."""
    out = []
    for word in _WORD.findall(normalise(text[:MAX_KEYWORD_SOURCE_CHARS])):
        if word[0].isascii():
            out.append(word.strip(".-'"))
        else:
            out += [
                word[i : i + length]
                for length in range(2, MAX_CHINESE_CHARS + 1)
                for i in range(len(word) - length + 1)
            ]
    return [word for word in out if len(word) > 1 and word not in _DULL and not _is_ragged(word)]


def patch(found: Sequence[Cluster], target: str) -> str:
    """The clusters as YAML for the `routes:` list; names are for a person to change."""
    lines = ["# Proposed from the decision log. Rename, choose targets, delete what does not fit."]
    lines.append("routes:")
    for number, cluster in enumerate(found, 1):
        name = _name(cluster, number)
        lines.append(
            f"  - name: {name}   # {cluster.size} requests, {len(cluster.texts)} different texts, "
            f"likeness {cluster.likeness:.2f}"
        )
        if cluster.nearest_route:
            lines.append(f"    # or add these examples to the route {cluster.nearest_route}")
        if cluster.keywords:
            quoted = ", ".join(_quoted(word) for word in cluster.keywords)
            lines.append(f"    # match: [{quoted}]   # words most of them share; rules are cheaper")
        lines.append(f"    target: {_quoted(target)}")
        lines.append("    examples:")
        lines += [f"      - {_quoted(text[:MAX_SHOWN_CHARS])}" for text in _varied(cluster.texts)]
    return "\n".join(lines) + "\n"


def _grouped(vectors: Floats, weights: npt.NDArray[np.int64]) -> list[list[int]]:
    """Leaders in order of frequency, members to the nearest leader, leaders re-centred twice."""
    middles: list[Floats] = []
    for vector in vectors:
        if not middles or max(float(vector @ m) for m in middles) < LIKENESS:
            middles.append(vector)
        if len(middles) >= 200:
            break
    centres = np.stack(middles)
    nearest = np.zeros(len(vectors), np.int64)
    for _ in range(3):
        likeness = vectors @ centres.T
        nearest = np.where(likeness.max(axis=1) >= LIKENESS, likeness.argmax(axis=1), -1)
        for c in range(len(centres)):
            if (rows := nearest == c).any():
                middle = (vectors[rows] * weights[rows, None]).sum(axis=0)
                centres[c] = middle / (np.linalg.norm(middle) + 1e-9)
    return [np.flatnonzero(nearest == c).tolist() for c in range(len(centres))]


def _is_ragged(word: str) -> bool:
    """Whether a run of Chinese begins or ends with a particle, which belongs to no keyword."""
    return word[0] in _PARTICLES or word[-1] in _PARTICLES


def _keywords(texts: list[str], background: Counter[str], total: int) -> tuple[str, ...]:
    counts = Counter(word for text in texts for word in set(words(text)))
    scored = []
    for word, count in counts.items():
        share = count / len(texts)
        elsewhere = (background[word] - count) / max(1, total - len(texts))
        if count >= 2 and share >= 0.3 and share > 4 * elsewhere and not _is_part(word, counts):
            scored.append((share - elsewhere, len(word), word))
    # Chinese is written without spaces: of runs that overlap, the commonest is kept.
    chosen: list[str] = []
    for _, _, word in sorted(scored, reverse=True):
        if len(chosen) < MAX_KEYWORDS and not any(_overlap(word, other) for other in chosen):
            chosen.append(word)
    return tuple(chosen)


def _is_part(word: str, counts: Counter[str]) -> bool:
    """Whether a run of Chinese mostly stands inside one that is a character longer.

    Words are told from cut-off pieces by the variety of what stands beside them.
    """
    if word.isascii():
        return False
    longer = (
        count for other, count in counts.items() if len(other) == len(word) + 1 and word in other
    )
    return max(longer, default=0) >= 0.7 * counts[word]


def _overlap(word: str, other: str) -> bool:
    if word.isascii() or other.isascii():
        return False
    if word in other or other in word:
        return True
    ends = range(1, min(len(word), len(other)))
    return any(word[-n:] == other[:n] or other[-n:] == word[:n] for n in ends)


def _varied(texts: Sequence[str], most: int = 8) -> list[str]:
    """Typical and less typical ones: a spread teaches more than near copies."""
    if len(texts) <= most:
        return list(texts)
    return [texts[round(i * (len(texts) - 1) / (most - 1))] for i in range(most)]


def _name(cluster: Cluster, number: int) -> str:
    latin = [word for word in cluster.keywords if word.isascii() and word.isalpha()]
    return "_".join(latin[:2]) or f"kind_{number}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
