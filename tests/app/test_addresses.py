r"""Which addresses webhooks may go to: every range of IANA's registries of special-purpose addresses, at both ends and beside them."""

from __future__ import annotations

import ipaddress
from itertools import pairwise

import pytest

from zetadp.app.jobs.webhooks.addresses import is_global

IPV4 = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
]
"""No address in them is one that anybody may be reached at, though the registry calls AS112's and AMT's anycast addresses global."""

IPV6 = [
    "::/128",
    "::1/128",
    "::/96",
    "::ffff:0:0/96",
    "::ffff:0:0:0/96",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001::/23",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:db8::/32",
    "2002::/16",
    "2620:4f:8000::/48",
    "3fff::/20",
    "4000::/2",
    "5f00::/16",
    "8000::/1",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
]

GLOBAL_IPV6 = ["2001:200::/23", "2400::/12", "2606:4700::/32", "2620:4f:7fff::/48", "2a00::/12"]


def ends(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> list[str]:
    """First, second, middle and last addresses."""
    size = network.num_addresses
    return [str(network[place]) for place in sorted({0, min(1, size - 1), size // 2, size - 1})]


@pytest.mark.parametrize("text", IPV4 + IPV6)
def test_no_address_of_a_special_range_is_global(text: str) -> None:
    assert [address for address in ends(ipaddress.ip_network(text)) if is_global(address)] == []


def test_what_lies_between_the_special_ranges_of_ipv4_is_global() -> None:
    networks = [ipaddress.IPv4Network(text) for text in IPV4]
    for before, after in pairwise(networks):
        first, last = int(before.broadcast_address) + 1, int(after.network_address) - 1
        between = [str(ipaddress.IPv4Address(number)) for number in (first, (first + last) // 2, last)] if first <= last else []
        assert [address for address in between if not is_global(address)] == []
    covered = sum(network.num_addresses for network in networks)
    assert covered == sum(network.num_addresses for network in ipaddress.collapse_addresses(networks)), "ranges overlap or aren't sorted"


@pytest.mark.parametrize("text", GLOBAL_IPV6)
def test_what_lies_beside_the_special_ranges_of_ipv6_is_global(text: str) -> None:
    assert [address for address in ends(ipaddress.ip_network(text)) if not is_global(address)] == []


@pytest.mark.parametrize("text", ["2001:db7:ffff::/48", "2001:db9::/32", "2003::/16", "2620:4f:8001::/48", "3fff:1000::/20", "2000::/16"])
def test_neighbours_of_special_ranges_are_global(text: str) -> None:
    assert [address for address in ends(ipaddress.ip_network(text)) if not is_global(address)] == []


@pytest.mark.parametrize("text", IPV4)
def test_special_address_within_nat64_is_not_global(text: str) -> None:
    inner = ipaddress.IPv4Network(text)
    for number in (inner.network_address, inner.broadcast_address):
        assert not is_global(str(ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) + int(number))))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("64:ff9b::93.184.216.34", True),
        ("64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", False),
        ("64:ff9b::1:0:0", False),
        ("::ffff:93.184.216.34", False),
        ("::93.184.216.34", False),
        ("2002:5db8:d822::1", False),
        ("2606:4700::1111%eth0", True),
        ("fe80::1%eth0", False),
        ("1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", False),
    ],
)
def test_address_that_holds_another_or_lies_at_the_edge(address: str, expected: bool) -> None:
    assert is_global(address) is expected
