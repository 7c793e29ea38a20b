"""Which addresses a webhook may reach: public ones, and networks that the operator names. A name is resolved once, every address that it has is
checked, and the connection goes to the address that was checked, so that another answer of the name server a moment later changes nothing."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from django.conf import settings

LONGEST = 1000
PORTS = {"https": 443, "http": 80}
# IPv6 addresses that stand for an IPv4 one, which is then the one to be judged: NAT64 and 6to4. (Mapped ones Python knows by itself.)
NAT64 = ip_network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


class AddressRefused(ValueError):
    """The address can't be used; the sentence says why and what to do."""


@dataclass(frozen=True)
class Target:
    """A parsed address. `private`: plain HTTP, which is only for networks that the operator names."""

    scheme: str
    host: str
    port: int
    path: str  # with the query

    @property
    def private(self) -> bool:
        return self.scheme == "http"


def parsed(url: str) -> Target:
    """Raises `AddressRefused` for what is no address of a webhook, without asking any name server."""
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
    """The host's addresses, all of them allowed. Raises `AddressRefused` where there is none, or where any of them isn't."""
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
    """Raises `AddressRefused` for an address inside this network, unless the operator named its network."""
    judged = meant(address)
    if any(judged in network for network in settings.WEBHOOK_NETWORKS if network.version == judged.version):
        return
    if target.private or not judged.is_global or judged.is_multicast or judged.is_reserved or judged.is_unspecified:
        raise AddressRefused(
            f"{target.host} leads to a network that webhooks may not reach. The operator can allow it with STITCHWORK_WEBHOOK_NETWORKS."
        )


def meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in NAT64 or int(address) >> 32 == 0 and int(address) > 1:  # the second: IPv4-compatible, long deprecated
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
