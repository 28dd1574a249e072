r"""Which IP addresses are on the internet, by the special-purpose address registries of IANA (as of 2025).

Python's ``ipaddress`` knows a part of them, and each version another part, so the ranges stand here. An address that merely might be
private isn't global: nobody answers webhooks under a relay, a benchmark's or a document's address.
"""

from __future__ import annotations

import ipaddress

_SPECIAL_IPV4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by customers of one provider
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and the metadata of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # IETF's protocols
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and the broadcast address
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All that IANA hands out. Outside: loopback, mapped and compatible IPv4, local-use NAT64, discard-only, segment routing (5f00::/16),
unique local, link-local, site-local (fec0::/10), multicast, and what is reserved."""
_SPECIAL_IPV6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # IETF's protocols: Teredo, benchmarks, ORCHID, AMT, AS112, drones
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: holds any IPv4 address
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""What a network without IPv4 reaches IPv4 hosts by: such an address is as global as the one that it holds."""


def is_global(address: str) -> bool:
    r"""Whether the address is one of the internet, where anybody may be reached.

    Args:
      address: IPv4 or IPv6, as ``getaddrinfo`` gives it; a zone (``%eth0``) doesn't count.

    >>> [is_global(text) for text in ("93.184.216.34", "10.0.0.1", "::ffff:93.184.216.34", "169.254.169.254", "64:ff9b::7f00:1")]
    [True, False, False, False, False]
    >>> [is_global(text) for text in ("2606:4700::1111", "64:ff9b::5db8:d822", "fec0::1", "::93.184.216.34", "2002:5db8:d822::1")]
    [True, True, False, False, False]
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found in _NAT64:
            return is_global(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
        special = found not in _GLOBAL_UNICAST or any(found in network for network in _SPECIAL_IPV6)
    else:
        special = any(found in network for network in _SPECIAL_IPV4)
    return not special and found.is_global  # a later Python may know of a later range
