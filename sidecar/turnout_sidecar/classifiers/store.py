"""A trained head as a file: saved whole or not at all, found again by the hash of what it learned.

Holds numbers and route names, and the example texts (they stand in the rules anyway) so that the
nearest ones can be shown. Never executes what it reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zipfile
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np

from turnout_rules.contents import written_aside
from turnout_rules.folders import cache_folder
from turnout_rules.table import Table
from turnout_sidecar.classifiers.head import Head
from turnout_sidecar.classifiers.heads import Examples, Fitted, Trained
from turnout_sidecar.classifiers.lexical import SparseRows, Vocabulary

FORMAT = 6
KEEP_FILES = 24
MOST_WITH_NAME = 20
"""With more examples than this a route's name adds nothing."""
_SEPARATORS = re.compile(r"[-_.]+")


class Lesson(msgspec.Struct, frozen=True):
    """What a table teaches: texts with the routes they belong to."""

    routes: tuple[str, ...]
    texts: tuple[str, ...]
    labels: tuple[int, ...]
    """Index into `routes`; -1: the text fits no route (an example of the default route)."""
    max_chars: int
    names: int = 0
    """So many of the last texts are routes' names."""

    @classmethod
    def of(cls, table: Table, max_chars: int) -> Lesson:
        """Examples and descriptions of the routes; the default route's examples fit none.

        Of routes with few examples, the names too.
        """
        routes, texts, labels = [], [], []
        names: dict[int, str] = {}
        default = table.default.name if table.default is not None else None
        for route in table.semantic_routes:
            inside = route.name != default
            said = (*route.examples, route.description) if inside else route.examples
            fresh = [text for text in dict.fromkeys(said) if text.strip()]
            if inside:
                routes.append(route.name)
                name = _SEPARATORS.sub(" ", route.name)
                if len(fresh) <= MOST_WITH_NAME and name not in fresh:
                    names[len(routes) - 1] = name
            texts += fresh
            labels += [len(routes) - 1 if inside else -1] * len(fresh)
        return cls(
            tuple(routes),
            (*texts, *names.values()),
            (*labels, *names),
            max_chars,
            len(names),
        )

    @property
    def digest(self) -> str:
        """Equal for lessons that teach the same."""
        body = msgspec.json.encode((FORMAT, self))
        return blake2b(body, digest_size=16).hexdigest()


def heads_folder() -> Path:
    """Where trained heads are kept."""
    return cache_folder() / "heads"


def is_writable(folder: Path) -> bool:
    """Whether files can be kept in `folder`, which is made if it can be."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def path_for(lesson: Lesson) -> Path:
    """The file of the head that `lesson` trains."""
    return heads_folder() / f"{lesson.digest}.npz"


def save(path: Path, lesson: Lesson, examples: Examples, trained: Trained) -> None:
    """Write aside, then rename; old files beyond `KEEP_FILES` go."""
    placed = [trained.vocabulary.place(examples.features[i]) for i in trained.rows]
    postings = SparseRows(placed, len(trained.vocabulary.known)).postings()
    rows = [int(i) for i in trained.rows]
    facts = {
        "format": FORMAT,
        "routes": lesson.routes,
        "texts": [lesson.texts[i] for i in rows],
        "max_chars": lesson.max_chars,
        "digest": lesson.digest,
        "unknown_weight": trained.vocabulary.unknown_weight,
        "fitted": [_facts(trained.full), _facts(trained.semantic)],
    }
    with written_aside(path) as file:
        np.savez(
            file,
            facts=np.frombuffer(json.dumps(facts, ensure_ascii=False).encode(), np.uint8),
            vectors=examples.vectors[trained.rows],
            labels=examples.labels[trained.rows],
            is_name=examples.is_name[trained.rows],
            known=trained.vocabulary.known,
            weights=trained.vocabulary.weights,
            starts=postings[0],
            owners=postings[1],
            values=postings[2],
            full=trained.full.coefficients,
            semantic=trained.semantic.coefficients,
            seen=trained.seen,
        )
    _prune(path.parent)


def load(path: Path) -> Head:
    """The head in `path`; raises OSError, or ValueError for a file that holds none."""
    try:
        return _read(path)
    except (zipfile.BadZipFile, EOFError, KeyError, msgspec.ValidationError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _read(path: Path) -> Head:
    with np.load(path, allow_pickle=False) as data:
        facts = json.loads(bytes(data["facts"]))
        if facts["format"] != FORMAT:
            raise ValueError(f"{path} has format {facts['format']}, not {FORMAT}")
        full, semantic = (
            msgspec.convert({**said, "coefficients": None}, _Loose) for said in facts["fitted"]
        )
        head = Head(
            routes=tuple(facts["routes"]),
            texts=tuple(facts["texts"]),
            labels=data["labels"],
            is_name=data["is_name"],
            vectors=data["vectors"],
            vocabulary=Vocabulary(data["known"], data["weights"], facts["unknown_weight"]),
            starts=data["starts"],
            owners=data["owners"],
            values=data["values"],
            full=full.with_coefficients(data["full"]),
            semantic=semantic.with_coefficients(data["semantic"]),
            seen=data["seen"],
            max_chars=facts["max_chars"],
            digest=facts["digest"],
        )
    with contextlib.suppress(OSError):  # A folder may be there to be read only.
        path.touch()
    return head


class _Loose(msgspec.Struct):
    """A `Fitted` as JSON keeps it."""

    shape: object
    calibration: object
    coefficients: None = None

    def with_coefficients(self, numbers: object) -> Fitted:
        """The whole of it."""
        from turnout_sidecar.classifiers.confidence import Calibration
        from turnout_sidecar.classifiers.heads import Shape

        return Fitted(
            shape=msgspec.convert(self.shape, Shape),
            calibration=msgspec.convert(self.calibration, Calibration),
            coefficients=numbers,  # type: ignore[arg-type]
        )


def _facts(fitted: Fitted) -> dict[str, object]:
    return {
        "shape": msgspec.to_builtins(fitted.shape),
        "calibration": msgspec.to_builtins(fitted.calibration),
    }


def _prune(folder: Path) -> None:
    def age(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:
            return 0.0

    files: Sequence[Path] = sorted(folder.glob("*.npz"), key=age, reverse=True)
    for path in files[KEEP_FILES:]:
        path.unlink(missing_ok=True)
