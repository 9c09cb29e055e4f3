"""Which addresses a host's text stands for; the C library is asked whether it reads the same."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout_rules.addresses import names_metadata, read_address, stands_for

NUMBERS = st.one_of(
    st.integers(0, 300).map(str),
    st.integers(0, 2**33).map(str),
    st.integers(0, 2**33).map(hex),
    st.integers(0, 2**33).map(lambda n: f"0{n:o}"),
    st.sampled_from(["", "0x", "08", "1a", "+1", "-1", "１"]),
)


@given(st.lists(NUMBERS, min_size=1, max_size=5).map(".".join))
def test_what_the_c_library_reads_as_an_address_is_read_alike(text: str) -> None:
    try:
        known = ipaddress.ip_address(socket.inet_aton(text))
    except (OSError, UnicodeError):
        return
    assert read_address(text) == known


@given(st.text(max_size=40))
def test_no_text_raises(text: str) -> None:
    read_address(text)
    names_metadata(text)


@pytest.mark.parametrize("text", ["a.example", "", "1.2.3.4.5", "256.1.1.1.", "0x.1", "1..2", "-1"])
def test_names_are_no_addresses(text: str) -> None:
    assert read_address(text) is None


@given(st.ip_addresses())
def test_an_address_stands_for_itself_first(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert stands_for(address)[0] == address
