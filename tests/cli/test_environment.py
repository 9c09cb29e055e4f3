"""The variables that `turnout run` sets: every client's own, nothing of the person's lost."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest

from proxy_kit import make_certificates
from turnout_cli.environment import (
    TRUST_STORE_PASSWORD,
    TRUST_VARIABLES,
    base_url_environment,
    proxy_environment,
    write_bundle,
    write_trust_store,
)

CA, BUNDLE, STORE = Path("/d/ca.pem"), Path("/d/bundle.pem"), Path("/d/store.p12")


def changed(environ: dict[str, str]) -> dict[str, str]:
    return proxy_environment(environ, port=4321, ca_cert=CA, bundle=BUNDLE, trust_store=STORE)


@pytest.mark.parametrize(
    "name",
    [*("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")],
)
def test_proxy_variables_carry_a_scheme_in_both_spellings(name: str) -> None:
    assert changed({name: "http://old:1"})[name] == "http://127.0.0.1:4321"


@pytest.mark.parametrize(
    ("client", "name", "value"),
    [
        ("httpx, openai-python, aiohttp, uv, Go", "SSL_CERT_FILE", BUNDLE),
        ("requests", "REQUESTS_CA_BUNDLE", BUNDLE),
        ("curl", "CURL_CA_BUNDLE", BUNDLE),
        ("git", "GIT_SSL_CAINFO", BUNDLE),
        ("pip", "PIP_CERT", BUNDLE),
        ("Codex", "CODEX_CA_CERTIFICATE", BUNDLE),
        ("cargo", "CARGO_HTTP_CAINFO", BUNDLE),
        ("AWS SDKs", "AWS_CA_BUNDLE", BUNDLE),
        ("Node", "NODE_EXTRA_CA_CERTS", CA),
        ("Deno", "DENO_CERT", CA),
    ],
)
def test_what_replaces_a_clients_roots_gets_all_of_them_and_what_adds_gets_ours(
    client: str, name: str, value: Path
) -> None:
    assert changed({})[name] == str(value), client
    assert name in TRUST_VARIABLES


def test_node_is_told_to_heed_the_proxy_variables() -> None:
    assert changed({})["NODE_USE_ENV_PROXY"] == "1"


def test_java_gets_proxy_and_trust_store_behind_the_persons_own_options() -> None:
    options = changed({"JAVA_TOOL_OPTIONS": "-Xmx1g"})["JAVA_TOOL_OPTIONS"].split()
    assert options[0] == "-Xmx1g"
    assert {"-Dhttps.proxyHost=127.0.0.1", "-Dhttps.proxyPort=4321"} <= set(options)
    assert f"-Djavax.net.ssl.trustStore={STORE}" in options


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "corp.example"}, "corp.example,localhost,127.0.0.1,::1"),
        ({"no_proxy": " a , localhost"}, "a,localhost,127.0.0.1,::1"),
    ],
)
def test_loopback_is_added_to_no_proxy_and_nothing_taken_from_it(
    before: dict[str, str], after: str
) -> None:
    for environ in (changed(before), base_url_environment(before, base_url="http://127.0.0.1:1")):
        assert environ["NO_PROXY"] == environ["no_proxy"] == after


def test_everything_else_stays_and_the_given_mapping_too() -> None:
    before = {"PATH": "/bin", "OPENAI_API_KEY": "sk-1"}
    after = changed(before)
    assert before.items() <= after.items()
    assert list(before) == ["PATH", "OPENAI_API_KEY"]


def test_base_url_variables_need_neither_proxy_nor_certificate() -> None:
    environ = base_url_environment({}, base_url="http://127.0.0.1:8082")
    assert environ["OPENAI_BASE_URL"] == environ["OPENAI_API_BASE"] == "http://127.0.0.1:8082/v1"
    assert environ["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8082"
    assert not {"HTTPS_PROXY", "SSL_CERT_FILE"} & environ.keys()


def trusts(bundle: Path) -> int:
    context = ssl.create_default_context(cafile=str(bundle))
    return len(context.get_ca_certs())


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    return make_certificates(tmp_path, ("localhost",))[0]


def test_the_bundle_is_the_public_roots_and_ours(ca: Path) -> None:
    bundle = write_bundle(ca, {})
    assert trusts(bundle) == trusts(Path(certifi.where())) + 1
    assert sorted(p.name for p in ca.parent.iterdir()) == ["ca-bundle.pem", "server.pem", ca.name]


def test_the_persons_own_roots_count_and_a_bundle_is_never_stacked_on_itself(
    tmp_path: Path, ca: Path
) -> None:
    own = make_certificates_in(tmp_path / "own")
    bundle = write_bundle(ca, {"SSL_CERT_FILE": str(own)})
    assert trusts(bundle) == 2
    again = write_bundle(ca, {"SSL_CERT_FILE": str(bundle)})
    assert again == bundle
    assert trusts(bundle) == trusts(Path(certifi.where())) + 1
    assert trusts(write_bundle(ca, {"SSL_CERT_FILE": str(tmp_path / "gone.pem")})) > 2


def make_certificates_in(folder: Path) -> Path:
    folder.mkdir()
    return make_certificates(folder, ("localhost",))[0]


def test_the_trust_store_holds_the_bundles_certificates(tmp_path: Path, ca: Path) -> None:
    from cryptography.hazmat.primitives.serialization import pkcs12

    own = make_certificates_in(tmp_path / "own")
    store = write_trust_store(write_bundle(ca, {"SSL_CERT_FILE": str(own)}))
    content = pkcs12.load_pkcs12(store.read_bytes(), TRUST_STORE_PASSWORD.encode())
    assert content.key is None
    assert len(content.additional_certs) == 2


def test_a_password_is_written_so_that_urls_carry_it() -> None:
    environ = proxy_environment(
        {},
        port=1,
        ca_cert=CA,
        bundle=BUNDLE,
        trust_store=STORE,
        host="10.0.0.5",
        login="me:p@ss/word",
    )
    assert environ["HTTPS_PROXY"] == "http://me:p%40ss%2Fword@10.0.0.5:1"
    assert "-Dhttps.proxyHost=10.0.0.5" in environ["JAVA_TOOL_OPTIONS"]
