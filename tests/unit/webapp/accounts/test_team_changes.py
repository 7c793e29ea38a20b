"""Members, roles, invitations: what a team allows, what it refuses, and that every change is recorded."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.unit.webapp.cast import make_user
from webapp.accounts import tokens
from webapp.accounts.models import ApiToken, AuditEntry, Invitation, Membership, SignInLink, Team, User
from webapp.knowledge.models import Document

PASSWORD = "correct horse staple"


@pytest.fixture
def team(people) -> Team:
    people.client("alice").post(reverse("accounts:new_team"), {"name": "Kernel group"})
    team = Team.objects.get(name="Kernel group")
    Membership.objects.create(team=team, user=people.bob, role=Membership.MEMBER)
    return team


def role(team, user) -> str | None:
    return Membership.objects.filter(team=team, user=user).values_list("role", flat=True).first()


def member_url(name: str, team, user) -> str:
    return reverse(f"accounts:{name}", args=[team.pk, Membership.objects.get(team=team, user=user).pk])


def invitation_link(client: Client, team: Team, **given) -> str:
    page = client.post(reverse("accounts:invite", args=[team.pk]), {"role": "member", "days": "7", "uses": "1"} | given).content.decode()
    return page.partition('id="invitation-link">')[2].partition("<")[0].strip().removeprefix("http://testserver")


def acts(team: Team) -> list[str]:
    return list(AuditEntry.objects.filter(team=team).order_by("pk").values_list("action", flat=True))


def test_who_makes_a_team_owns_it_and_works_in_it(people, team):
    assert role(team, people.alice) == Membership.OWNER and acts(team) == ["team.created"]
    assert User.objects.get(pk=people.alice.pk).last_team == team


def test_the_last_owner_neither_leaves_nor_is_demoted(people, team):
    alice = people.client("alice")
    assert "make someone else an owner first" in alice.post(member_url("remove", team, people.alice), follow=True).content.decode()
    alice.post(member_url("set_role", team, people.alice), {"role": "member"})
    assert role(team, people.alice) == Membership.OWNER
    alice.post(member_url("set_role", team, people.bob), {"role": "owner"})
    alice.post(member_url("remove", team, people.alice))
    assert role(team, people.alice) is None and role(team, people.bob) == Membership.OWNER


def test_nobody_leaves_or_is_put_out_of_a_personal_team(people):
    personal = people.alice.personal_team
    Membership.objects.filter(team=personal, user=people.bob).update(role=Membership.OWNER)
    people.client("alice").post(member_url("remove", personal, people.alice))
    people.client("bob").post(member_url("remove", personal, people.alice))
    people.client("bob").post(member_url("set_role", personal, people.alice), {"role": "viewer"})
    assert role(personal, people.alice) == Membership.OWNER


def test_who_is_removed_is_out_at_once_with_their_tokens(people, team):
    bob = people.client("bob")
    page = reverse("accounts:team", args=[team.pk])
    _, text = tokens.issue(people.bob, team, "t", ["read"])
    assert bob.get(page).status_code == 200 and tokens.authenticate(f"Bearer {text}")
    people.client("alice").post(member_url("remove", team, people.bob))
    assert bob.get(page).status_code == 404 and tokens.authenticate(f"Bearer {text}") is None
    Membership.objects.create(team=team, user=people.bob)
    assert tokens.authenticate(f"Bearer {text}") is None  # joining again restores nothing
    assert acts(team)[-1] == "member.removed"


def test_members_invite_nobody_and_change_no_role(people, team):
    bob = people.client("bob")
    assert bob.post(reverse("accounts:invite", args=[team.pk]), {"role": "owner", "days": "7"}).status_code == 403
    assert bob.post(member_url("set_role", team, people.bob), {"role": "owner"}).status_code == 403
    assert bob.post(member_url("remove", team, people.alice)).status_code == 403
    assert bob.get(reverse("accounts:audit", args=[team.pk])).status_code == 403
    page = bob.get(reverse("accounts:team", args=[team.pk])).content.decode()
    assert "Invite by a link" not in page and "Leave the team" in page


def test_a_link_for_one_person_works_once(people, team):
    link = invitation_link(people.client("alice"), team, role="viewer")
    charlie, eve = people.client("charlie"), Client()
    eve.force_login(make_user("eve"))
    assert "Join as charlie" in charlie.get(link).content.decode()
    charlie.post(link)
    assert role(team, people.charlie) == Membership.VIEWER
    assert eve.get(link).status_code == 410 and eve.post(link).status_code == 410
    assert charlie.get(link).status_code == 410


def test_a_link_for_many_until_it_is_revoked_or_too_old(people, team):
    alice = people.client("alice")
    link = invitation_link(alice, team, uses="")
    for name in ("eve", "dan"):
        client = Client()
        client.force_login(make_user(name))
        client.post(link)
        assert role(team, User.objects.get(username=name)) == Membership.MEMBER
    invitation = Invitation.objects.get()
    assert invitation.uses == 2
    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert people.client("charlie").get(link).status_code == 410
    Invitation.objects.update(expires_at=timezone.now() + timedelta(days=1))
    alice.post(reverse("accounts:revoke_invitation", args=[team.pk, invitation.pk]))
    assert people.client("charlie").post(link).status_code == 410
    assert role(team, people.charlie) is None


def test_only_a_hash_of_the_link_is_kept(people, team):
    link = invitation_link(people.client("alice"), team)
    assert link.strip("/").rpartition("/")[2] not in str(Invitation.objects.values())
    assert link not in people.client("alice").get(reverse("accounts:team", args=[team.pk])).content.decode()


def test_who_is_in_the_team_keeps_the_role_and_uses_nothing_up(people, team):
    link = invitation_link(people.client("alice"), team, role="viewer")
    people.client("bob").post(link)
    assert role(team, people.bob) == Membership.MEMBER and Invitation.objects.get().uses == 0


def test_an_account_is_made_by_invitation_only(people, team, settings):
    sign_up = reverse("account_signup")
    given = {"username": "dana", "password1": PASSWORD, "password2": PASSWORD}
    stranger = Client()
    assert "by invitation" in stranger.get(sign_up).content.decode()
    stranger.post(sign_up, given)
    assert not User.objects.filter(username="dana").exists()
    stranger.get(invitation_link(people.client("alice"), team, role="viewer"))
    assert "Kernel group" in stranger.get(sign_up).content.decode()
    stranger.post(sign_up, given)
    dana = User.objects.get(username="dana")
    assert role(team, dana) == Membership.VIEWER and dana.personal_team and Invitation.objects.get().uses == 1
    assert "Team Kernel group: switch" in stranger.get(reverse("runs:list")).content.decode()
    settings.SIGN_UP_OPEN = True
    other = Client()
    other.post(sign_up, given | {"username": "eve"})
    assert User.objects.get(username="eve").personal_team.members.count() == 1


def test_names_of_any_length_and_kind_have_a_team(db):
    for name in ("x" * 150, "@+.-_", "Zoë"):
        assert User.with_team(name).personal_team.members.count() == 1


def test_switching_is_remembered_and_ends_with_the_membership(people, team):
    bob = people.client("bob")
    bob.post(reverse("accounts:switch"), {"team": str(team.pk)})
    again = people.client("bob")  # a different session
    assert "Team Kernel group: switch" in again.get(reverse("runs:list")).content.decode()
    Membership.objects.filter(team=team, user=people.bob).delete()
    assert "Kernel group" not in again.get(reverse("runs:list")).content.decode()
    assert bob.post(reverse("accounts:switch"), {"team": str(team.pk)}).status_code == 404
    assert bob.post(reverse("accounts:switch"), {"team": "nonsense"}).status_code == 404


def test_new_things_are_made_in_the_current_team(people, team):
    alice = people.client("alice")
    alice.post(reverse("knowledge:new_document"), {"kind": "text", "title": "t", "text": "t"})
    assert Document.objects.get().team == team
    alice.post(reverse("accounts:tokens"), {"name": "CI", "scopes": ["read"], "days": ""})
    assert ApiToken.objects.get().team == team


def test_a_one_time_link_is_kept_apart_from_invitations(people):
    token = SignInLink.issue(people.alice)
    assert Client().get(reverse("accounts:invitation", args=[token])).status_code == 410
