from __future__ import annotations

from ipaddress import ip_network

import pytest
from django.test import Client, RequestFactory
from django.urls import reverse

from tests.unit.webapp.people import make_result
from webapp.accounts import audit
from webapp.accounts.models import AuditEntry, SignInLink


def page(people, **query) -> str:
    return people.client("alice").get(reverse("accounts:audit", args=[people.alice.personal_team_id]), query).content.decode()


@pytest.mark.slow
def test_who_did_what_when_from_where(people):
    run = make_result(people.alice)
    client = Client(REMOTE_ADDR="10.1.2.3")
    client.get(reverse("accounts:sign_in_link", args=[SignInLink.issue(people.alice)]))
    client.post(reverse("runs:publish", args=[run.pk]))
    entries = list(AuditEntry.objects.filter(team=run.team, address="10.1.2.3").order_by("pk").values_list("actor_name", "action", "target", "via"))
    assert entries == [("alice", "sign_in", "", "browser"), ("alice", "run.published", "softmax", "browser")]
    assert "10.1.2.3" in page(people) and "run published" in page(people)


def test_a_sign_in_stands_in_every_team_of_the_person(people):
    people.client("bob")
    assert set(AuditEntry.objects.filter(action="sign_in", actor=people.bob).values_list("team__name", flat=True)) == {"alice", "bob"}


def test_filters_pages_and_csv(people):
    team = people.alice.personal_team
    for number in range(150):
        audit.record(people.alice, team, "member.role", f"person {number}", {"before": "viewer", "after": "member"})
    audit.record(people.bob, team, "token.made", "=cmd()", {"scopes": ["read"]})
    assert page(people).count('<td class="nowrap"><time') == 100 and "page=2" in page(people)
    assert page(people, action="token.made").count('<td class="nowrap"><time') == 1
    assert page(people, q="person 149").count('<td class="nowrap"><time') == 1
    assert "Nothing matches" in page(people, who="nobody") and "Nothing matches" in page(people, until="2001-01-01")
    assert page(people, since="not a day").count("<time") == page(people).count("<time")
    answer = people.client("alice").get(reverse("accounts:audit_csv", args=[team.pk]), {"action": "token.made"})
    text = b"".join(answer.streaming_content).decode()
    assert text.count("\n") == 2 and "'=cmd()" in text and "scopes read" in text


def test_owners_alone_read_it(people):
    url = reverse("accounts:audit", args=[people.alice.personal_team_id])
    assert [people.client(name).get(url).status_code for name in ("alice", "bob", "charlie")] == [200, 403, 404]


@pytest.mark.parametrize(
    ("trusted", "remote", "forwarded", "said"),
    [
        ([], "10.0.0.1", "6.6.6.6", "10.0.0.1"),
        (["10.0.0.0/24"], "10.0.0.1", "6.6.6.6, 9.9.9.9", "9.9.9.9"),
        (["10.0.0.0/24"], "10.0.0.1", "6.6.6.6, 9.9.9.9, 10.0.0.7", "9.9.9.9"),
        (["10.0.0.0/24"], "10.0.1.1", "6.6.6.6", "10.0.1.1"),
        (["10.0.0.0/24"], "10.0.0.1", "", "10.0.0.1"),
        (["10.0.0.0/24"], "::ffff:10.0.0.1", "9.9.9.9", "9.9.9.9"),
        (["10.0.0.0/24"], "10.0.0.1", "<script>", None),
    ],
)
def test_the_address_is_a_proxys_word_only_where_the_proxy_is_configured(settings, trusted, remote, forwarded, said):
    settings.HTTPS, settings.TRUSTED_PROXIES = True, [ip_network(one) for one in trusted]
    assert audit.client_address(RequestFactory().get("/", REMOTE_ADDR=remote, headers={"X-Forwarded-For": forwarded})) == said
