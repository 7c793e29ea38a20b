"""Sets the content security policy. Everything must come from this origin, and inline or external content is forbidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        # Plotly and CodeMirror create <style> elements at run time, which the browser checks under a separate directive. Style attributes remain
        # forbidden.
        "style-src-elem 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)


def page_headers(secure: bool) -> dict[str, str]:
    """Returns the headers of a page, for responses that bypass Django's middleware. `secure` says whether the visitor uses TLS."""
    headers = {
        "content-security-policy": POLICY,
        "x-frame-options": settings.X_FRAME_OPTIONS,
        "referrer-policy": settings.SECURE_REFERRER_POLICY,
        "cross-origin-opener-policy": settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
    }
    if settings.SECURE_CONTENT_TYPE_NOSNIFF:
        headers["x-content-type-options"] = "nosniff"
    if secure and settings.SECURE_HSTS_SECONDS:
        headers["strict-transport-security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
    return headers


class ContentSecurityPolicy:
    """Adds the policy to each response that does not already have a stricter one."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        if iscoroutinefunction(self):
            return self._asynchronous(request)
        return self._protect(self.get_response(request))

    async def _asynchronous(self, request: HttpRequest) -> Any:
        return self._protect(await self.get_response(request))

    @staticmethod
    def _protect(response: HttpResponseBase) -> HttpResponseBase:
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response
