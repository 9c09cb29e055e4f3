"""What the scripts share: the person's words, a system prompt, the tool, how pieces are shown."""

import os
import sys

PROMPT = os.environ["CLIENT_PROMPT"]
SYSTEM = "You are a helpful assistant with tools for files and code. Know the zebrafish."
DESCRIPTION = "Read the notes file of the environment."
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def read_notes(path: str) -> str:
    """Read the notes file."""
    with open(path) as file:
        return file.read()


def show(piece: str | None) -> None:
    """To the person, at once."""
    sys.stdout.write(piece or "")
    sys.stdout.flush()
