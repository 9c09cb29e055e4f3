"""Training in a process of its own: reads a lesson from standard input, writes the head's file.

Apart from the service so that neither its event loop nor its memory feels it. `train_apart` is the
service's side; the rest is what the child runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from turnout_sidecar.classifiers.base import ClassifierError
from turnout_sidecar.classifiers.store import Lesson
from turnout_sidecar.runners.exec_engine import die_with_parent

Progress = Callable[[int, int], None]
"""Called with (examples encoded, examples in all)."""
TIMEOUT_S = 600.0
NICENESS = 5


async def train_apart(
    lesson: Lesson, encoder: Path, head: Path, progress: Progress | None = None
) -> None:
    """Train `lesson` in a child process that writes the file `head`. Raises `ClassifierError`."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnout_sidecar.classifiers.training"),
        *(str(encoder), str(head), str(os.getpid())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **single},
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            errors = await _converse(process, msgspec.json.encode(lesson), progress)
    except TimeoutError as error:
        raise ClassifierError(f"training took over {TIMEOUT_S:.0f} s and was stopped") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip().splitlines()
        detail = said[-1] if said else f"exit status {process.returncode}"
        raise ClassifierError(f"training failed: {detail}")


async def _converse(
    process: asyncio.subprocess.Process, lesson: bytes, progress: Progress | None
) -> bytes:
    assert process.stdin and process.stdout and process.stderr

    async def feed() -> None:
        assert process.stdin
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(lesson)
            await process.stdin.drain()
            process.stdin.close()

    async def follow() -> None:
        assert process.stdout
        async for line in process.stdout:
            done, _, total = line.decode().partition("/")
            if progress is not None and total:
                progress(int(done), int(total))

    _, _, errors = await asyncio.gather(feed(), follow(), process.stderr.read())
    await process.wait()
    return errors


def train_here(
    lesson: Lesson, encoder_path: Path, head: Path, progress: Progress | None = None
) -> None:
    """Encode, fit and save `lesson` as the file `head` in this process; blocks."""
    import numpy as np

    from turnout_sidecar.classifiers.encoder import Encoder, give_back_memory
    from turnout_sidecar.classifiers.heads import Examples, train
    from turnout_sidecar.classifiers.lexical import hashed
    from turnout_sidecar.classifiers.store import save

    encoder = Encoder(encoder_path, max_chars=lesson.max_chars)
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, len(lesson.texts))

    vectors, pieces = encoder.encode_all(lesson.texts, count)
    del encoder
    give_back_memory()  # The kernels want what the encoder had.
    examples = Examples(
        vectors=vectors,
        features=tuple(
            hashed(text, lesson.max_chars, mine)
            for text, mine in zip(lesson.texts, pieces, strict=True)
        ),
        pieces=pieces,
        labels=np.array(lesson.labels, np.int64),
        is_name=np.arange(len(lesson.texts)) >= len(lesson.texts) - lesson.names,
        count=len(lesson.routes),
    )
    save(head, lesson, examples, train(examples))


def main() -> None:
    """The child's side: `ENCODER HEAD PARENT`."""
    encoder, head, parent = sys.argv[1:]
    die_with_parent(int(parent))
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    lesson = msgspec.json.decode(sys.stdin.buffer.read(), type=Lesson)
    train_here(
        lesson, Path(encoder), Path(head), lambda done, total: print(f"{done}/{total}", flush=True)
    )


if __name__ == "__main__":
    main()
