"""The kinds of notifications. One record defines everything about a kind; the page, mail, webhooks and preferences are derived from it.

To add a kind, add a record here and a call that sends it, in `notices` or, for events that webhooks report, in `webapp/notifications/announce.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webapp.review import places
from webapp.review.models import Notification, Verdict
from webapp.runs.headline import NAMES


@dataclass(frozen=True)
class Kind:
    """A kind of notification."""

    name: str  # as stored, at most 10 characters
    wish: str  # the wording in a person's preferences, after "Tell me when"
    sentence: Callable[[Notification], str]  # a notification as text, such as "bob mentioned you on line 12 of candidate 4"
    hook: str = ""  # the wording in a webhook's settings; empty if webhooks do not offer it
    event: bool = False  # has no actor, and is marked as read once the person opens the run


KINDS: dict[str, Kind] = {}


def kind(name: str, wish: str, hook: str = "", event: bool = False) -> Callable[[Callable[[Notification], str]], Kind]:
    """Registers the decorated sentence as a kind of notification."""

    def register(sentence: Callable[[Notification], str]) -> Kind:
        KINDS[name] = Kind(name, wish, sentence, hook, event)
        return KINDS[name]

    return register


def sentence(notification: Notification) -> str:
    """Returns a notification as text."""
    return KINDS[notification.kind].sentence(notification)


@kind("ended", "a run I started ends", hook="a run ends", event=True)
def ENDED(notification: Notification) -> str:
    detail: dict[str, Any] = notification.detail
    words = detail.get("says") or str(detail.get("outcome") or "no outcome").replace("_", " ")
    figure = f", {detail['speedup']:.2f}× over {detail['against']}" if detail.get("speedup") and detail.get("against") else ""
    return f"Run finished: {words}{figure}"


@kind("paused", "a run I started waits for a person", hook="a run waits for a person", event=True)
def PAUSED(notification: Notification) -> str:
    return f"Run paused: {notification.detail.get('reason') or 'it waits for a person'}"


@kind("overtaken", "a baseline overtakes a result of mine", hook="a baseline overtakes a result", event=True)
def OVERTAKEN(notification: Notification) -> str:
    detail: dict[str, Any] = notification.detail
    name = NAMES.get(detail.get("baseline", ""), detail.get("baseline", "a baseline"))
    return f"{name} now takes {detail.get('baseline_ms', 0):.3g} ms, less than the best program's {detail.get('program_ms', 0):.3g} ms"


@kind("mention", "someone mentions me")
def MENTION(notification: Notification) -> str:
    return f"{_who(notification)} mentioned you {_where(notification)}"


@kind("reply", "someone replies in a thread I wrote in")
def REPLY(notification: Notification) -> str:
    return f"{_who(notification)} replied {_where(notification)}"


@kind("thread", "someone comments on a run I started")
def THREAD(notification: Notification) -> str:
    return f"{_who(notification)} commented {_where(notification)}"


@kind("verdict", "someone gives a verdict on my candidate, or on one I gave a verdict on", hook="a verdict changes")
def VERDICT(notification: Notification) -> str:
    verdict = notification.verdict
    if verdict is None or verdict.value == Verdict.WITHDRAWN:
        return f"{_who(notification)} withdrew the verdict on candidate {verdict.candidate if verdict else ''}".rstrip()
    return f"{_who(notification)} marked candidate {verdict.candidate} as {verdict.value}"


@kind("resolved", "a thread I wrote in is resolved or reopened")
def RESOLVED(notification: Notification) -> str:
    thread = notification.thread
    return f"{_who(notification)} {'resolved' if thread and thread.resolved_at else 'reopened'} the thread {_where(notification)}"


def _who(notification: Notification) -> str:
    return notification.actor.username if notification.actor else "Somebody"


def _where(notification: Notification) -> str:
    return f"on {places.label(notification.thread.anchor)}" if notification.thread else ""


HOOKS = {one.name: one.hook for one in KINDS.values() if one.hook}
EVENTS = [one.name for one in KINDS.values() if one.event]
WISHES = {one.name: one.wish for one in KINDS.values()}
