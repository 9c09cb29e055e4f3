"""The sidecar's logging: to stderr, without prompts, keys or other people's header bytes.

Our own modules log names, numbers and reasons only. Libraries do not know that rule, so those that
quote what they receive are kept from it here.
"""

from __future__ import annotations

import logging
import sys

from aiohttp.http_exceptions import HttpProcessingError

_QUIET = ("aiohttp.access", "aiohttp.client", "asyncio", "httpx", "urllib3")


class _NoQuotes(logging.Filter):
    """Drops tracebacks of malformed requests: they quote the offending header line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True; the record itself is trimmed."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.exc_info = None
            record.exc_text = None
            record.msg = f"malformed request from %s ({type(error).__name__})"
        return True


def set_up_logging(*, verbose: bool) -> None:
    """Root handler on stderr at INFO, or DEBUG for our own modules."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname).1s %(name)s %(message)s",
        force=True,
    )
    logging.getLogger("turnout_sidecar").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("aiohttp.server").addFilter(_NoQuotes())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
