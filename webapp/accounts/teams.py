"""Team membership and its changes. Every change is recorded in the audit log and takes effect immediately."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import slugify

from webapp.accounts import alone, audit
from webapp.accounts.access import Asker
from webapp.accounts.current_team import switch
from webapp.accounts.lost_access import access_changed
from webapp.accounts.models import ApiToken, Invitation, Membership, SignInLink, Team, User
from webapp.accounts.signed_in import Request

INVITED = "invitation"  # session key for a person who has opened a link and has no account yet


class TeamRefused(ValueError):
    """Raised for a change that the team's rules do not permit. The message explains why, and what to do."""


def create(request: Request, name: str) -> Team:
    with transaction.atomic():
        team = Team.objects.create(name=name, slug=f"{slugify(name)[:90] or 'team'}-{secrets.token_hex(3)}")
        Membership.objects.create(team=team, user=request.user, role=Membership.OWNER)
        audit.record(request, team, "team.created", name)
    switch(request, team)
    return team


def rename(request: Request, team: Team, name: str) -> None:
    before, team.name = team.name, name
    with transaction.atomic():
        team.save(update_fields=["name"])
        audit.record(request, team, "team.renamed", name, {"before": before})


def invite(request: Request, team: Team, role: str, *, days: int, most_uses: int | None, note: str = "") -> tuple[Invitation, str]:
    """Returns a new invitation and the token of its link, which is not stored."""
    alone.refuse("invitations")
    token = secrets.token_urlsafe(32)
    with transaction.atomic():
        made = Invitation.objects.create(
            team=team, role=role, note=note, token_hash=SignInLink.hash(token), created_by=request.user,
            expires_at=timezone.now() + timedelta(days=days), most_uses=most_uses,
        )  # fmt: skip
        detail = {"role": role, "days": days, "uses": most_uses or "many"}
        audit.record(request, team, "invitation.made", note or f"as {role}", detail)
    return made, token


def revoke_invitation(request: Request, invitation: Invitation) -> None:
    with transaction.atomic():
        if Invitation.objects.filter(pk=invitation.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit.record(request, invitation.team, "invitation.revoked", invitation.note or f"as {invitation.role}")


def open_invitation(token: str) -> Invitation | None:
    return _open().filter(token_hash=SignInLink.hash(token)).select_related("team", "created_by").first()


def pending_invitation(request: HttpRequest) -> Invitation | None:
    """Returns the invitation of a person who opened a link before signing in or signing up."""
    kept = request.session.get(INVITED)
    return _open().filter(pk=kept).select_related("team").first() if kept else None


def _open() -> QuerySet[Invitation]:
    return Invitation.objects.filter(Q(most_uses=None) | Q(uses__lt=F("most_uses")), revoked_at=None, expires_at__gt=timezone.now())


def join(request: HttpRequest, user: User, invitation: Invitation) -> Membership:
    """Accepts the invitation. Existing members keep their role and do not use up the link."""
    with transaction.atomic():
        present = Membership.objects.filter(team=invitation.team, user=user).first()
        if present is None:
            # Check the condition again under the lock, because two people may try to claim the last use of a link concurrently.
            if not _open().filter(pk=invitation.pk).update(uses=F("uses") + 1):
                raise TeamRefused("This invitation has been used or revoked: ask for a new one.")
            present = Membership.objects.create(team=invitation.team, user=user, role=invitation.role)
            detail = {"role": invitation.role, "invitation": invitation.note or str(invitation.pk)}
            audit.record(user if not request.user.is_authenticated else request, invitation.team, "member.joined", user.get_username(), detail)
            user.last_team = invitation.team  # the team in which a new account's first session starts
            user.save(update_fields=["last_team"])
    request.session.pop(INVITED, None)
    return present


def set_role(request: Request, team: Team, member: Membership, role: str) -> None:
    with transaction.atomic():
        before = _locked(team, member).role
        if before == role:
            return
        if before == Membership.OWNER:
            _needs_another_owner(team, member, "Make someone else an owner first: a team always needs one.")
        if team.pk == member.user.personal_team_id:
            raise TeamRefused(f"This is {member.user}'s personal team: they stay its owner.")
        Membership.objects.filter(pk=member.pk).update(role=role)
        audit.record(request, team, "member.role", member.user.get_username(), {"before": before, "after": role})
        access_changed()


def remove(request: Request, team: Team, member: Membership) -> None:
    """Removes a member, which immediately revokes their access to pages, sockets and tokens. Their runs remain with the team."""
    leaves = member.user_id == request.user.pk
    with transaction.atomic():
        if team.pk == member.user.personal_team_id:
            raise TeamRefused("You can't leave your personal team." if leaves else f"This is {member.user}'s personal team: they stay in it.")
        if _locked(team, member).role == Membership.OWNER:
            _needs_another_owner(team, member, "You are the last owner: make someone else an owner first." if leaves else "A team needs an owner.")
        audit.record(request, team, "member.left" if leaves else "member.removed", member.user.get_username())
        ApiToken.objects.filter(team=team, user=member.user, revoked_at=None).update(revoked_at=timezone.now())
        member.delete()
        access_changed()


def _locked(team: Team, member: Membership) -> Membership:
    """Returns the current membership and locks it, so that nobody else changes this team's members in the meantime."""
    Team.objects.select_for_update().get(pk=team.pk)
    found = Membership.objects.filter(pk=member.pk).first()
    if found is None:
        raise TeamRefused(f"{member.user} is no longer in the team.")
    return found


def _needs_another_owner(team: Team, member: Membership, sentence: str) -> None:
    if not Membership.objects.filter(team=team, role=Membership.OWNER).exclude(pk=member.pk).exists():
        raise TeamRefused(sentence)


def revoke_token(asker: Asker, token: ApiToken) -> None:
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit.record(asker, token.team, "token.revoked", token.name, {"prefix": token.prefix, "of": token.user.get_username()})
            access_changed()
