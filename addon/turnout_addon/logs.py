"""Keeps what clients send out of mitmproxy's own log lines.

A broken request makes mitmproxy log the raw bytes it could not read, with any key that stands in
them. The filter replaces such bytes by their mention; it never drops a line.
"""

from __future__ import annotations

import logging
import re

from turnout_rules.settings import Proxy

# From the first bytes literal on: what follows it may be a part of it.
_BYTES = re.compile(r"(?:\bbytearray\()?\bb(['\"]).*", re.DOTALL)
_CONNECTIONS = (
    *("client connect", "client disconnect", "server connect", "server disconnect"),
    "Streaming response",
)
_REVERSE = re.compile(r"reverse proxy to \S+")
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


class _TrueReverse(logging.Filter):
    """mitmproxy names the address in the mode, and no request goes there for that."""

    leads_to = ""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if match := _REVERSE.match(message):
            record.msg = f"base-URL listener ({self.leads_to}){message[match.end() :]}"
            record.args = ()
        return True


_FILTER = _WithoutBytes()
_TRUE_REVERSE = _TrueReverse()


def keep_bytes_out_of_logs() -> None:
    """Install the filter on mitmproxy's loggers; calling it again changes nothing."""
    for name in _SOURCES:
        logging.getLogger(name).addFilter(_FILTER)


def say_where_reverse_leads(proxy: Proxy) -> None:
    """From now on the reverse listener is announced by the origins that it leads to."""
    origins = " and ".join(dict.fromkeys((proxy.origin, proxy.anthropic_origin)))
    _TRUE_REVERSE.leads_to = f"to {origins}, or where a rule says"
    logging.getLogger("mitmproxy.proxy.mode_servers").addFilter(_TRUE_REVERSE)


def leave_connections_out_of_logs() -> None:
    """For a terminal that people read: a line a request, none for connections."""
    for name in ("mitmproxy.proxy.server", "mitmproxy.proxy.layers.http"):
        logging.getLogger(name).addFilter(_WithoutConnections())
