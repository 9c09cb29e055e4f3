"""An answer being received: its preamble held back, its end watched.

Until content comes, what an upstream sends is kept here and can still be given up for the next
target; from then on every chunk goes on as it came. It sends nothing and knows no client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp
from multidict import CIMultiDictProxy

from turnout_rules.answers import MAX_PREAMBLE_BYTES, Answer
from turnout_rules.model import Target
from turnout_rules.tool_answers import CallTurner
from turnout_sidecar.failures import Failure, judge_nothing

HOLD_S = 30.0
"""A preamble is let go after so long, so that a client sees an upstream that thinks is alive."""


class Failed(Exception):
    """An attempt that did not end in an answer."""

    def __init__(self, failure: Failure) -> None:
        """Carry `failure`."""
        super().__init__(failure.message)
        self.failure = failure


@dataclass(slots=True)
class Exchange:
    """An answer being received. `close` must be called; it aborts what is not yet read."""

    target: Target
    status: int
    headers: CIMultiDictProxy[str]
    answer: Answer
    """What is known of its content; says nothing of an answer of another status than 2xx."""
    turner: CallTurner | None
    """Turns the calls of tools that were sent under other names back."""
    adjustments: tuple[str, ...]
    idle_s: float
    """The longest pause between two pieces of it."""
    _response: aiohttp.ClientResponse
    _stack: AsyncExitStack
    held: bytearray = field(default_factory=bytearray)
    """What has come and has not been passed on."""
    content_length: int | None = None
    attempts: tuple[str, ...] = ()
    on_piece: Callable[[], None] = lambda: None
    """Called with each piece that comes: a sign of its engine's life."""
    _has_ended: bool = False

    @property
    def content_type(self) -> str:
        """The answer's `content-type`, with its parameters."""
        return self.headers.get("content-type", "application/octet-stream")

    async def begin(self) -> None:
        """Read until more than comments and white space has come; raises `Failed`. No limit."""
        while not (self.answer.has_begun or self._is_settled()):
            await self._read()

    async def hold_preamble(self) -> None:
        """Read until there is content, no longer than `HOLD_S`; raises `Failed` if none comes."""
        try:
            async with asyncio.timeout(HOLD_S):
                while not self._is_settled():
                    await self._read()
        except TimeoutError:
            return
        if self.status < 300 and (flaw := self.answer.flaw) is not None:
            after = self.headers.get("retry-after")
            raise Failed(judge_nothing(self.target.name, flaw, after))

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises `Failed` when it breaks off or lacks its closing event."""
        turner = self.turner
        async for chunk in self._received():
            out = turner.feed(chunk) if turner else chunk
            if out:
                yield out
        if turner and (rest := turner.end()):
            yield rest
        if self.status < 300 and self.answer.is_cut:
            raise Failed(_cut(self.target))

    async def _received(self) -> AsyncIterator[bytes]:
        if self.held:
            yield bytes(self.held)
            self.held.clear()
        try:
            async for chunk in self._response.content.iter_any():
                self.on_piece()
                self.answer.feed(chunk)
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._end()
            raise Failed(broken(self.target, error, is_begun=True)) from error
        self._end()

    async def close(self) -> None:
        """Give the lease back; an answer that is not wholly read is aborted at its source."""
        await self._stack.aclose()

    def _is_settled(self) -> bool:
        is_error = self.status >= 300
        return is_error or self.answer.is_decided or len(self.held) > MAX_PREAMBLE_BYTES

    async def _read(self) -> None:
        try:
            chunk = await self._response.content.readany()
        except aiohttp.SocketTimeoutError:
            raise Failed(late(self.target, self.idle_s)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Failed(broken(self.target, error)) from error
        self.held += chunk
        if chunk:
            self.on_piece()
            self.answer.feed(chunk)
        else:
            self._end()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self.answer.end()


def broken(target: Target, error: Exception, *, is_begun: bool = False) -> Failure:
    """The connection to `target` was lost, before or in its answer."""
    when = "in the middle of its answer" if is_begun else "before it answered"
    return Failure(
        kind="broken",
        status=502,
        code="upstream_broken",
        message=f"{target.name} broke off {when} ({type(error).__name__})",
    )


def late(target: Target, seconds: float) -> Failure:
    """Nothing came from `target` within `seconds`."""
    return Failure(
        kind="timeout",
        status=504,
        code="upstream_timeout",
        message=f"{target.name} sent no byte within {seconds:g} s",
    )


def _cut(target: Target) -> Failure:
    return Failure(
        kind="broken",
        status=502,
        code="upstream_broken",
        message=f"{target.name} ended its stream without its closing event",
    )
