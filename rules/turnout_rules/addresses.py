"""Which addresses a host's text or an IPv6 address stands for, and which are cloud metadata.

The same machine can be written in many ways; whoever refuses one must refuse them all. Resolves no
name.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Google, Azure, Oracle, DigitalOcean, OpenStack
        "169.254.170.2",  # AWS ECS: credentials of tasks
        "169.254.170.23",  # AWS EKS: Pod Identity Agent
        "169.254.0.23",  # Tencent
        "169.254.42.42",  # Scaleway
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's wire server, a public address
        "192.0.0.192",  # Oracle Cloud Classic
        "100.96.0.96",  # Volcano Engine
        "100.80.80.80",  # UCloud
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS EKS
        "fd20:ce::254",  # Google
        "fd00:42::42",  # Scaleway
        "fe80::a9fe:a9fe",  # OpenStack
    )
)
_METADATA_NAMES = frozenset(
    (
        *("metadata", "metadata.google.internal", "metadata.goog", "metadata.google"),
        *("instance-data", "instance-data.ec2.internal", "metadata.azure.internal"),
        *("metadata.azure.com", "metadata.tencentyun.com", "metadata.oraclecloud.com"),
        *("metadata.platformequinix.com", "metadata.packet.net", "rancher-metadata"),
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_LOW_32 = 0xFFFF_FFFF
_PART = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}")


def read_address(host: str) -> Address | None:
    """The address that `host` is written as, in any form that C libraries read; None: a name.

    Takes brackets, zones, full-width digits, and IPv4 in decimal, octal and hexadecimal with one to
    four parts (`2130706433`, `0x7f.1`, `0177.0.0.1`), as `inet_aton` of POSIX does.
    """
    text = plain_host(host).strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return _read_loosely(text)


def plain_host(host: str) -> str:
    """`host` as resolvers compare it: lower case, plain digits and dots, no dot at its end."""
    return unicodedata.normalize("NFKC", host[:300]).replace("。", ".").lower().rstrip(".")


def _read_loosely(text: str) -> ipaddress.IPv4Address | None:
    parts = text.split(".")
    if len(parts) > 4 or not all(_PART.fullmatch(part) for part in parts):
        return None
    try:
        numbers = [_number(part) for part in parts]
    except ValueError:
        return None
    *first, last = numbers
    if any(number > 255 for number in first) or last >= 256 ** (5 - len(numbers)):
        return None
    value = last
    for place, number in enumerate(first):
        value |= number << (8 * (3 - place))
    return ipaddress.IPv4Address(value)


def _number(part: str) -> int:
    if part[:2] in ("0x", "0X"):
        return int(part, 16)
    return int(part, 8) if part[0] == "0" and len(part) > 1 else int(part)


def stands_for(address: Address) -> tuple[Address, ...]:
    """`address` and every IPv4 address that it may be carried on to.

    Mapped, compatible and translated ones (RFC 4291, RFC 2765), NAT64 (RFC 6052, RFC 8215), 6to4
    (RFC 3056), Teredo's server and client (RFC 4380), ISATAP (RFC 5214).
    """
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    number = int(address)
    low = number & _LOW_32
    found: list[int] = []
    if number >> 32 in (0, 0xFFFF, 0xFFFF_0000) and number > 1:
        found.append(low)
    if address in _NAT64:
        found.append(low)
    if address in _NAT64_LOCAL:
        # A network's own prefix has 48, 56, 64 or 96 bits; bits 64 to 71 are empty. A reading that
        # begins with a zero is a reading of padding.
        upper, lower = number >> 64, (number >> 24) & _LOW_32
        readings = (
            (upper & 0xFFFF) << 16 | lower >> 16,
            (upper & 0xFF) << 24 | lower >> 8,
            lower,
            low,
        )
        found += [each for each in readings if each >> 24]
    if address.sixtofour is not None:
        found.append(int(address.sixtofour))
    if address.teredo is not None:
        found += [int(part) for part in address.teredo]
    if (number >> 32) & 0xFDFF_FFFF == 0x5EFE:
        found.append(low)
    return (address, *(ipaddress.IPv4Address(each) for each in dict.fromkeys(found)))


def is_metadata(address: Address) -> bool:
    """Whether a cloud's machines find their credentials there."""
    return address in _METADATA


def names_metadata(host: str) -> bool:
    """Whether `host` is a name under which clouds serve metadata."""
    return plain_host(host) in _METADATA_NAMES
