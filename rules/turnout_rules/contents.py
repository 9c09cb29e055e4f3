"""Reads files with care (regular ones, up to a size), and writes them whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

MAX_RULE_FILE_BYTES = 32 * 1024 * 1024
"""A table of ten thousand routes takes about two."""


def read_limited(path: Path) -> bytes:
    """All of `path`; OSError also for what is no regular file, or over `MAX_RULE_FILE_BYTES`.

    A pipe in a rules folder would hold up its reader for ever, a device would fill the memory.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        data = file.read(MAX_RULE_FILE_BYTES + 1)
    if len(data) > MAX_RULE_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_RULE_FILE_BYTES} bytes", str(path))
    return data


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets the name `path`, and the mode of what had it, once all is written.

    If anything fails nothing is left of it. A new file is its owner's alone (mode 0600).
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if path.exists():
            fresh.chmod(path.stat().st_mode & 0o777)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
