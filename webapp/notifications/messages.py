"""Formats a message for each kind of webhook. Names and reasons are untrusted text, so they must not turn into mentions or links."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, NotRequired, TypedDict

from webapp.notifications.models import MATTERMOST, SLACK, Hook

VERSION = 1
ZERO_WIDTH = "\u200b"  # inserted after every @ so that nobody is mentioned


class Message(TypedDict):
    """`text` is one sentence, and `detail` holds the figures of the event."""

    event: str
    text: str
    title: str  # the run's title, or "" for a test
    url: str
    at: str
    run: NotRequired[str]
    detail: NotRequired[dict[str, Any]]


def body(hook: Hook, message: Message) -> tuple[bytes, dict[str, str]]:
    """Returns the request's body and headers. A generic message is signed: its header `X-Stitchwork-Signature` contains "sha256=" followed by the
    HMAC of the body under the hook's key."""
    if hook.style == SLACK:
        return _json({"text": _slack(message)}), {}
    if hook.style == MATTERMOST:
        return _json({"text": _mattermost(message), "username": "Stitchwork"}), {}
    content = _json({"version": VERSION, **message})
    signature = hmac.new(hook.key.encode(), content, hashlib.sha256).hexdigest()
    return content, {"X-Stitchwork-Event": message["event"], "X-Stitchwork-Signature": f"sha256={signature}"}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _slack(message: Message) -> str:
    """Escapes the three characters that Slack's mrkdwn reserves (https://docs.slack.dev/messaging/formatting-message-text)."""

    def plain(text: str) -> str:
        return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    title, text, url = plain(message["title"]).replace("|", "/"), plain(message["text"]), message["url"]
    return f"<{url}|{title}>: {text}" if title and url else _titled(title, text)


def _mattermost(message: Message) -> str:
    """Escapes untrusted text so that it has no effect as Markdown."""

    def plain(text: str) -> str:
        escaped = "".join(f"\\{letter}" if letter in "\\`*_{}[]()#!|<>~" else letter for letter in " ".join(text.split()))
        return escaped.replace("@", f"@{ZERO_WIDTH}").replace("://", f":{ZERO_WIDTH}//")

    title, text, url = plain(message["title"]), plain(message["text"]), message["url"]
    return f"[{title}]({url}): {text}" if title and url else _titled(title, text)


def _titled(title: str, text: str) -> str:
    return f"{title}: {text}" if title else text
