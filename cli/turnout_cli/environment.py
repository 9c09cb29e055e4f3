"""The environment that makes a tool's LLM traffic go through Turnout, tool by tool.

Which client reads which variable was measured per client; the table in docs/tools.md shows it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import certifi

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
TRUST_STORE_PASSWORD = "turnout"  # noqa: S105 - the store holds public certificates only

# These replace a client's trusted roots: they get a bundle of the roots and our own authority.
_BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",  # httpx, openai-python, aiohttp, uv, reqwest, Go
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CODEX_CA_CERTIFICATE",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
)
# These add to the roots: our authority alone.
_EXTRA_VARIABLES = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")
TRUST_VARIABLES = (*_BUNDLE_VARIABLES, *_EXTRA_VARIABLES)
"""Every variable by which a tool is told whom to trust."""
_PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


def proxy_environment(
    environ: Mapping[str, str],
    *,
    port: int,
    ca_cert: Path,
    bundle: Path,
    trust_store: Path,
    host: str = "127.0.0.1",
    login: str = "",
) -> dict[str, str]:
    """`environ` changed so that its clients use the proxy and trust `ca_cert`.

    `login`: `user:password`, where the proxy demands one (Java takes none from its options).
    """
    changed = dict(environ)
    user, _, password = login.partition(":")
    sign_in = f"{quote(user, safe='')}:{quote(password, safe='')}@" if login else ""
    url = f"http://{sign_in}{f'[{host}]' if ':' in host else host}:{port}"
    for name in _PROXY_VARIABLES:
        changed[name] = changed[name.lower()] = url
    no_proxy = _with_loopback(environ.get("NO_PROXY") or environ.get("no_proxy", ""))
    changed["NO_PROXY"] = changed["no_proxy"] = no_proxy
    changed |= dict.fromkeys(_BUNDLE_VARIABLES, str(bundle))
    changed |= dict.fromkeys(_EXTRA_VARIABLES, str(ca_cert))
    changed["NODE_USE_ENV_PROXY"] = "1"
    java = (
        f"-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} "
        f"-Dhttps.proxyHost={host} -Dhttps.proxyPort={port} "
        f"-Djavax.net.ssl.trustStore={trust_store} -Djavax.net.ssl.trustStoreType=PKCS12 "
        f"-Djavax.net.ssl.trustStorePassword={TRUST_STORE_PASSWORD}"
    )
    changed["JAVA_TOOL_OPTIONS"] = f"{environ.get('JAVA_TOOL_OPTIONS', '')} {java}".strip()
    return changed


def base_url_environment(environ: Mapping[str, str], *, base_url: str) -> dict[str, str]:
    """`environ` changed so that tools with a base-URL variable use the reverse listener."""
    changed = dict(environ)
    changed["OPENAI_BASE_URL"] = changed["OPENAI_API_BASE"] = f"{base_url}/v1"
    changed["ANTHROPIC_BASE_URL"] = base_url
    no_proxy = _with_loopback(environ.get("NO_PROXY") or environ.get("no_proxy", ""))
    changed["NO_PROXY"] = changed["no_proxy"] = no_proxy
    return changed


def write_bundle(ca_cert: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Write roots plus our authority beside `ca_cert`; the user's own roots count if set."""
    bundle = ca_cert.with_name("ca-bundle.pem")
    roots = Path(environ.get("SSL_CERT_FILE") or certifi.where())
    if roots == bundle or not roots.is_file():
        roots = Path(certifi.where())
    _write(bundle, roots.read_bytes().rstrip() + b"\n" + ca_cert.read_bytes())
    return bundle


def write_trust_store(bundle: Path) -> Path:
    """Write the bundle's certificates as a PKCS12 trust store, the form Java reads."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    store = bundle.with_name("ca-bundle.p12")
    with warnings.catch_warnings():
        # Some of the world's roots break small rules of RFC 5280; that is theirs to mend.
        warnings.simplefilter("ignore")
        certificates = x509.load_pem_x509_certificates(bundle.read_bytes())
    entries = [pkcs12.PKCS12Certificate(c, b"%d" % n) for n, c in enumerate(certificates)]
    encryption = BestAvailableEncryption(TRUST_STORE_PASSWORD.encode())
    _write(store, pkcs12.serialize_java_truststore(entries, encryption))
    return store


def _with_loopback(no_proxy: str) -> str:
    """Loopback appended to what the person excludes already; local engines never loop back."""
    names = [name.strip() for name in no_proxy.split(",") if name.strip()]
    return ",".join(names + [name for name in LOOPBACK_NAMES if name not in names])


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: other `turnout run`s may be reading the old file."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(path)
