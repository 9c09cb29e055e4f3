"""The shape of a request that a tool sends beside the conversation: one row of the list."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class SideRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One shape. All that is given must hold."""

    task: str
    """What `when: {task: …}` calls it."""
    tool: str
    system: tuple[str, ...] = ()
    """How a text of the system prompt begins: one of these."""
    starts: str = ""
    """How the last text in the person's name begins."""
    holds: tuple[str, ...] = ()
    """What stands further on in it, in this order."""
    ends: str = ""
    """How it ends; the same as `starts`: it is this and nothing else."""
    is_alone: bool = False
    """No other message but system prompts."""
    has_tools: bool = True
    """False: it offers no tools."""
    max_tokens: int = 0
    """The answer's limit, exactly; 0: any."""

    words: Literal["before", "here", "none"] = "before"
    """The person's words: those of the messages before, (also) in this text, or none at all.

    One of the next three says `here`, too.
    """
    after: str = ""
    """They begin behind the first of this,"""
    until: str = ""
    """and end before the last of this."""
    speakers: tuple[str, ...] = ()
    """A transcript: the line starts of the person's turns, then of the others'."""

    @property
    def has_words_here(self) -> bool:
        """Whether the last text holds words of the person."""
        return self.words == "here" or bool(self.after or self.until or self.speakers)


def alone(**shape: Any) -> SideRequest:
    """A request that is one message besides system prompts, and offers no tools."""
    return SideRequest(is_alone=True, has_tools=False, **shape)
