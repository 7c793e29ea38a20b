"""Every URL in the URL configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.urls import URLPattern, URLResolver, get_resolver


@dataclass(frozen=True)
class Pattern:
    name: str  # including its namespace; "" if the pattern has none
    parameters: tuple[str, ...]
    route: str


def patterns(resolver: URLResolver | None = None, namespace: str = "", route: str = "") -> Iterator[Pattern]:
    for entry in (resolver or get_resolver()).url_patterns:
        if isinstance(entry, URLResolver):
            inner = f"{namespace}{entry.namespace}:" if entry.namespace else namespace
            yield from patterns(entry, inner, f"{route}{entry.pattern}")
        elif isinstance(entry, URLPattern):
            parameters = tuple(entry.pattern.converters) or tuple(entry.pattern.regex.groupindex)
            yield Pattern(f"{namespace}{entry.name}" if entry.name else "", parameters, f"{route}{entry.pattern}")
