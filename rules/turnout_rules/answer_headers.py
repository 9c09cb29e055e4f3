"""Which headers of an answer act on the origin that a client believes it talks to.

A moved request was asked of one host and answered by another. What the second says about itself to
browsers, caches and sign-ins must not be taken for the first one's word. Both planes ask here.
"""

from __future__ import annotations

_BOUND = frozenset(
    (
        # Sessions and sign-ins: the target's are none of the client's.
        *("set-cookie", "set-cookie2", "set-login", "clear-site-data", "activate-storage-access"),
        *("www-authenticate", "proxy-authenticate", "proxy-authentication-info"),
        *("authentication-info", "authentication-control", "optional-www-authenticate"),
        # Where to go instead: a client would follow with the credentials of its own provider.
        *("location", "content-location", "refresh", "alt-svc", "alt-used", "link"),
        *("strict-transport-security", "public-key-pins", "public-key-pins-report-only"),
        *("expect-ct", "origin-agent-cluster", "service-worker-allowed", "timing-allow-origin"),
        *("content-security-policy", "content-security-policy-report-only"),
        *("permissions-policy", "feature-policy", "document-policy", "x-frame-options"),
        *("report-to", "reporting-endpoints", "nel", "accept-ch", "critical-ch", "p3p"),
        *("use-as-dictionary", "speculation-rules", "sourcemap", "x-sourcemap"),
        # Orders to a server in front of us.
        *("x-sendfile", "x-lighttpd-send-file", "surrogate-control"),
    )
)
_BOUND_FAMILIES = ("access-control-", "cross-origin-", "x-accel-re", "x-accel-expires")


def is_bound_to_origin(name: str) -> bool:
    """Whether an answer's header stays with the host that said it; `name` in any case.

    Names are those of the IANA field registry (2026) that set state for an origin, redirect a
    client or sign it in, and of nginx's and Apache's internal redirects.
    """
    lower = name.lower()
    return lower in _BOUND or lower.startswith(_BOUND_FAMILIES)
