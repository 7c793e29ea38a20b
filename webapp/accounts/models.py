"""People and teams. Every object that has an owner refers to a team."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models, transaction
from django.utils import timezone
from django.utils.text import slugify


class User(AbstractUser):
    """A person who signs in with a one-time link or a password. `email` may be empty on single-machine installations."""

    personal_team = models.OneToOneField("accounts.Team", on_delete=models.PROTECT, null=True, related_name="personal_of")
    last_team = models.ForeignKey("accounts.Team", on_delete=models.SET_NULL, null=True, related_name="+")  # the next session starts in this team

    @classmethod
    def with_team(cls, username: str, **fields: Any) -> User:
        """Create a user together with a personal team that the user owns."""
        with transaction.atomic():
            user = cls.objects.create_user(username, **fields)
            user.make_personal_team()
            return user

    @property
    def home(self) -> Team:
        """Returns the personal team, which every account gets when it is created. Raises `ValueError` for an account without one."""
        if self.personal_team is None:
            raise ValueError(f"{self.username} has no personal team")
        return self.personal_team

    def make_personal_team(self) -> None:
        team = Team.objects.create(name=self.username[:100], slug=f"{slugify(self.username)[:90] or 'person'}-{secrets.token_hex(3)}")
        Membership.objects.create(team=team, user=self, role=Membership.OWNER)
        self.personal_team = team
        self.save(update_fields=["personal_team"])


class Team(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    slug = models.SlugField(max_length=110, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="teams")

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    OWNER, MEMBER, VIEWER = "owner", "member", "viewer"
    ROLES = [(OWNER, "owner"), (MEMBER, "member"), (VIEWER, "viewer")]
    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    role = models.CharField(max_length=10, choices=ROLES, default=MEMBER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_a_team")]


class SignInLink(models.Model):
    """A one-time sign-in link. Only the hash of its token is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    @staticmethod
    def hash(token: str) -> str:
        return hashlib.sha256(token.encode()).hexdigest()

    @classmethod
    def issue(cls, user: User, lifetime: timedelta = timedelta(days=1)) -> str:
        """Creates a new link, invalidates the user's earlier unused links, and returns the new link's token."""
        token = secrets.token_urlsafe(32)
        cls.objects.filter(user=user, used_at=None).delete()
        cls.objects.create(user=user, token_hash=cls.hash(token), expires_at=timezone.now() + lifetime)
        return token

    @classmethod
    def redeem(cls, token: str) -> User | None:
        """Returns the user the first time a token is redeemed, or None if the token is unknown, used or expired."""
        now = timezone.now()
        claimed = cls.objects.filter(token_hash=cls.hash(token), used_at=None, expires_at__gt=now).update(used_at=now)
        return cls.objects.select_related("user").get(token_hash=cls.hash(token)).user if claimed == 1 else None


class Invitation(models.Model):
    """A link through which people join a team. Only the hash of its token is stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=10, choices=Membership.ROLES, default=Membership.MEMBER)
    note = models.CharField(max_length=100, blank=True)  # the intended recipient
    token_hash = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    most_uses = models.IntegerField(null=True)  # null: unlimited
    uses = models.IntegerField(default=0)
    revoked_at = models.DateTimeField(null=True)

    @property
    def state(self) -> str:
        """Returns "open", "used", "expired" or "revoked"."""
        if self.revoked_at is not None:
            return "revoked"
        if self.most_uses is not None and self.uses >= self.most_uses:
            return "used"
        return "open" if self.expires_at > timezone.now() else "expired"


class ApiToken(models.Model):
    """A personal token, which acts for its owner in one team within its scopes (webapp/accounts/tokens.py)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16)
    token_hash = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    last_used_from = models.GenericIPAddressField(null=True)
    revoked_at = models.DateTimeField(null=True)

    @property
    def state(self) -> str:
        """Returns "valid", "expired" or "revoked"."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= timezone.now() else "valid"


class AuditEntry(models.Model):
    """One recorded action. Only webapp/accounts/audit.py writes these rows."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="audit")
    at = models.DateTimeField(default=timezone.now)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    actor_name = models.CharField(max_length=150, blank=True)  # kept after the account has been deleted
    action = models.CharField(max_length=40)
    target = models.CharField(max_length=200, blank=True)
    detail = models.JSONField(default=dict)
    address = models.GenericIPAddressField(null=True)
    via = models.CharField(max_length=40, blank=True)  # browser, "token sw_…", command

    class Meta:
        indexes = [models.Index(fields=["team", "-at"])]


class CachedValue(models.Model):
    """A row of the table behind webapp/accounts/shared_cache.py."""

    key = models.CharField(max_length=250, primary_key=True)
    value = models.JSONField()
    expires_at = models.DateTimeField(null=True, db_index=True)
