"""Whether an `Origin` header says that a page of this machine is calling. What is odd, does not."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OWN = re.compile(
    r"https?://(?:localhost|(?:[a-z0-9-]{1,63}\.){1,8}localhost|127(?:\.\d{1,3}){3}|\[::1\])"
    r"(?::\d{1,5})?"
)
_MOST_CHARS = 600


def is_own_page(origins: Sequence[str]) -> bool:
    """`origins`: every `Origin` header of a request, at least one.

    Browsers send a scheme, a host and perhaps a port (RFC 6454), or `null`; an empty value, two
    values, or anything else is no page of this machine.
    """
    if len(origins) != 1 or len(origins[0]) > _MOST_CHARS:
        return False
    return _OWN.fullmatch(origins[0].strip().lower()) is not None
