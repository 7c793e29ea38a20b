"""The registry of notification kinds, on which pages, mail and webhooks are based."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils.html import escape

from tests.unit.webapp.people import make_result
from webapp.notifications.models import Delivery
from webapp.review.kinds import HOOKS, KINDS, sentence
from webapp.review.models import Notification


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_can_be_stored_said_and_chosen(people, name):
    run = make_result(people.alice)
    row = Notification.objects.create(user=people.alice, kind=name, run=run)
    assert row.kind == name and len(name) <= min(Notification._meta.get_field("kind").max_length, Delivery._meta.get_field("event").max_length)
    page = people.client("alice").get(reverse("review:notifications")).content.decode()
    assert escape(sentence(row)) in page and f'name="kind" value="{name}"' in page and KINDS[name].wish in page
    hooks = people.client("alice").get(reverse("notifications:hooks")).content.decode()
    assert (f'name="event" value="{name}"' in hooks) is (name in HOOKS)
