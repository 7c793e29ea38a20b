"""Checks the addresses that a webhook may reach: public ones, and those in networks that the operator has listed.

A host name is resolved once, and every one of its addresses is checked. The connection uses one of the checked addresses, so it makes no difference
if the name server returns another address a moment later."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from django.conf import settings

LONGEST = 1000
PORTS = {"https": 443, "http": 80}
# NAT64 and 6to4 addresses embed an IPv4 address, which is the one to check. (Python already recognises IPv4-mapped addresses.)
NAT64 = ip_network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


class AddressRefused(ValueError):
    """Raised if an address cannot be used. The message says why and what to do."""


@dataclass(frozen=True)
class Target:
    """A parsed address. `private` means plain HTTP, which is allowed only in networks that the operator has listed."""

    scheme: str
    host: str
    port: int
    path: str  # includes the query

    @property
    def private(self) -> bool:
        return self.scheme == "http"


def parsed(url: str) -> Target:
    """Parses a webhook URL without a name lookup. Raises `AddressRefused` if it is not a valid webhook address."""
    if len(url) > LONGEST or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise AddressRefused("An address has at most 1,000 printable ASCII characters and no spaces.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused("This isn't an address. Use one that begins with https://.") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise AddressRefused("Use an address that begins with https://.")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("Leave the user name and password out of the address.")
    if parts.scheme == "http" and not settings.WEBHOOK_NETWORKS:
        raise AddressRefused("Use https://: plain HTTP is only for networks that the operator names in STITCHWORK_WEBHOOK_NETWORKS.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, parts.hostname, PORTS[parts.scheme] if port is None else port, path)


def resolved(target: Target) -> list[str]:
    """Returns the host's addresses if all of them are allowed. Raises `AddressRefused` if the host has no address or if any address is not
    allowed."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise AddressRefused(f"{target.host} has no address.") from None
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    if not addresses:
        raise AddressRefused(f"{target.host} has no address.")
    for address in addresses:
        check(ip_address(address), target)
    return addresses


def check(address: Address, target: Target) -> None:
    """Raises `AddressRefused` for an address in a private network, unless the operator has listed that network."""
    judged = meant(address)
    if any(judged in network for network in settings.WEBHOOK_NETWORKS if network.version == judged.version):
        return
    if target.private or not judged.is_global or judged.is_multicast or judged.is_reserved or judged.is_unspecified:
        raise AddressRefused(
            f"{target.host} leads to a network that webhooks may not reach. The operator can allow it with STITCHWORK_WEBHOOK_NETWORKS."
        )


def meant(address: Address) -> Address:
    """Returns the IPv4 address embedded in an IPv6 address or, if there is none, the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in NAT64 or int(address) >> 32 == 0 and int(address) > 1:  # second case: IPv4-compatible addresses, which are deprecated
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
