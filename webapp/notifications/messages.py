"""One message as each kind of webhook takes it. Names and reasons are strangers' texts: none may become a mention or a link."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, NotRequired, TypedDict

from webapp.notifications.models import MATTERMOST, SLACK, Hook

VERSION = 1
ZERO_WIDTH = "\u200b"  # after an @, so that it calls nobody


class Message(TypedDict):
    """`text` is one sentence; `detail` the figures of the event."""

    event: str
    text: str
    title: str  # of the run, or "" for a test
    url: str
    at: str
    run: NotRequired[str]
    detail: NotRequired[dict[str, Any]]


def body(hook: Hook, message: Message) -> tuple[bytes, dict[str, str]]:
    """The body and its own headers. A generic message is signed: `X-Stitchwork-Signature` is sha256= and the HMAC of the body by the hook's key."""
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
    """Slack's mrkdwn: three characters are its own (https://docs.slack.dev/messaging/formatting-message-text)."""

    def plain(text: str) -> str:
        return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    title, text, url = plain(message["title"]).replace("|", "/"), plain(message["text"]), message["url"]
    return f"<{url}|{title}>: {text}" if title and url else _titled(title, text)


def _mattermost(message: Message) -> str:
    """Markdown, without what a stranger's text could make of it."""

    def plain(text: str) -> str:
        escaped = "".join(f"\\{letter}" if letter in "\\`*_{}[]()#!|<>~" else letter for letter in " ".join(text.split()))
        return escaped.replace("@", f"@{ZERO_WIDTH}").replace("://", f":{ZERO_WIDTH}//")

    title, text, url = plain(message["title"]), plain(message["text"]), message["url"]
    return f"[{title}]({url}): {text}" if title and url else _titled(title, text)


def _titled(title: str, text: str) -> str:
    return f"{title}: {text}" if title else text
