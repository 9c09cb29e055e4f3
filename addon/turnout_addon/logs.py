"""Keeps what clients send out of mitmproxy's own log lines.

A broken request makes mitmproxy log the raw bytes it could not read, with any key that stands in
them. The filter replaces such bytes by their mention; it never drops a line.
"""

from __future__ import annotations

import logging
import re

# From the first bytes literal on: what follows it may be a part of it.
_BYTES = re.compile(r"(?:\bbytearray\()?\bb(['\"]).*", re.DOTALL)
_SOURCES = ("mitmproxy.proxy.server", "mitmproxy.addons.next_layer", "mitmproxy.addonmanager")


class _WithoutBytes(logging.Filter):
    """Cuts a record's message at its first bytes literal."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if match := _BYTES.search(message):
            record.msg = f"{message[: match.start()]}(bytes not logged)"
            record.args = ()
        return True


_FILTER = _WithoutBytes()


def keep_bytes_out_of_logs() -> None:
    """Install the filter on mitmproxy's loggers; calling it again changes nothing."""
    for name in _SOURCES:
        logging.getLogger(name).addFilter(_FILTER)
