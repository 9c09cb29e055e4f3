"""Keeps what clients send out of mitmproxy's own log lines.

A broken request makes mitmproxy log the raw bytes it could not read, with any key that stands in
them. The filter replaces such bytes by their mention; it never drops a line.
"""

from __future__ import annotations

import logging
import re

# From the first bytes literal on: what follows it may be a part of it.
_BYTES = re.compile(r"(?:\bbytearray\()?\bb(['\"]).*", re.DOTALL)
_CONNECTIONS = (
    *("client connect", "client disconnect", "server connect", "server disconnect"),
    "Streaming response",
)
_SOURCES = ("mitmproxy.proxy.server", "mitmproxy.addons.next_layer", "mitmproxy.addonmanager")


class _WithoutBytes(logging.Filter):
    """Cuts a record's message at its first bytes literal."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if match := _BYTES.search(message):
            record.msg = f"{message[: match.start()]}(bytes not logged)"
            record.args = ()
        return True


class _WithoutConnections(logging.Filter):
    """Drops the four lines that every connection writes; what failed is still told."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(_CONNECTIONS)


_FILTER = _WithoutBytes()


def keep_bytes_out_of_logs() -> None:
    """Install the filter on mitmproxy's loggers; calling it again changes nothing."""
    for name in _SOURCES:
        logging.getLogger(name).addFilter(_FILTER)


def leave_connections_out_of_logs() -> None:
    """For a terminal that people read: a line a request, none for connections."""
    for name in ("mitmproxy.proxy.server", "mitmproxy.proxy.layers.http"):
        logging.getLogger(name).addFilter(_WithoutConnections())
