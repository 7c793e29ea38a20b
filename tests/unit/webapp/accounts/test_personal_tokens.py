from __future__ import annotations

from datetime import timedelta

from django.urls import reverse
from django.utils import timezone

from webapp.accounts import access, tokens
from webapp.accounts.models import ApiToken, AuditEntry, Membership

PAGE = reverse("accounts:tokens")


def made(people, *scopes, user="alice", **fields):
    owner = getattr(people, user)
    token, text = tokens.issue(owner, people.alice.personal_team, "t", scopes or ("read",))
    ApiToken.objects.filter(pk=token.pk).update(**fields)
    return token, f"Bearer {text}"


def test_a_token_names_its_person_team_and_scopes(people):
    _, header = made(people, "read", "verify")
    grant = tokens.authenticate(header, "10.0.0.1")
    assert (grant.user, grant.team, grant.scopes) == (people.alice, people.alice.personal_team, {"read", "verify"})
    assert grant.allows("verify") and not grant.allows("submit")
    kept = ApiToken.objects.get()
    assert kept.last_used_at and kept.last_used_from == "10.0.0.1"


def test_whatever_is_not_in_force_is_nothing(people):
    now = timezone.now()
    for fields in ({"expires_at": now - timedelta(seconds=1)}, {"revoked_at": now}):
        assert tokens.authenticate(made(people, **fields)[1]) is None
    _, header = made(people)
    for bad in ("", "Bearer", "Bearer sw_", header + "x", header.replace("Bearer", "Basic"), "Bearer " + "sw_" + "x" * 500):
        assert tokens.authenticate(bad) is None, bad
    people.alice.is_active = False
    people.alice.save()
    assert tokens.authenticate(header) is None


def test_a_token_ends_with_the_membership_and_never_exceeds_the_role(people):
    _, header = made(people, "admin", user="bob")
    grant = tokens.authenticate(header)

    class Asked:
        user, team = grant.user, grant.team

    Asked.grant = grant
    assert access.has_right(Asked, grant.team, "act") and not access.has_right(Asked, grant.team, "own")
    assert not access.has_right(Asked, people.bob.personal_team, "view")  # access to its own team only
    Membership.objects.filter(team=grant.team, user=people.bob).update(role=Membership.VIEWER)
    assert not access.has_right(Asked, grant.team, "act") and access.has_right(Asked, grant.team, "view")
    Membership.objects.filter(team=grant.team, user=people.bob).delete()
    assert tokens.authenticate(header) is None


def test_it_is_shown_once_and_only_a_hash_is_kept(people):
    alice = people.client("alice")
    page = alice.post(PAGE, {"name": "CI", "scopes": ["read", "submit"], "days": "30"}).content.decode()
    text = page.partition('id="new-token">')[2].partition("<")[0]
    assert tokens.authenticate(f"Bearer {text}").scopes == {"read", "submit"}
    assert text not in alice.get(PAGE).content.decode() and text not in str(ApiToken.objects.values())
    entry = AuditEntry.objects.get(action="token.made")
    assert entry.target == "CI" and text not in str(entry.detail)


def test_a_token_without_a_name_or_a_scope_is_refused_and_nothing_typed_is_lost(people):
    answer = people.client("alice").post(PAGE, {"name": "CI", "days": "30"})
    page = answer.content.decode()
    assert answer.status_code == 422 and "Choose at least one scope" in page and 'value="CI"' in page and not ApiToken.objects.exists()


def test_ones_own_and_those_of_a_team_that_one_owns_can_be_revoked(people):
    token, header = made(people, user="bob")
    url = reverse("accounts:revoke_token", args=[token.pk])
    assert people.client("charlie").post(url).status_code == 404
    mine, _ = made(people, user="alice")
    assert people.client("bob").post(reverse("accounts:revoke_token", args=[mine.pk])).status_code == 403
    people.client("alice").post(url)
    assert tokens.authenticate(header) is None
    page = reverse("accounts:team_tokens", args=[people.alice.personal_team_id])
    assert people.client("alice").get(page).content.decode().count("sw_") == 2
    assert people.client("bob").get(page).content.decode().count("sw_") == 1
