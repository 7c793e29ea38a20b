"""People and teams. Everything that belongs to somebody carries a team."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models, transaction
from django.utils import timezone


class User(AbstractUser):
    """Signs in by a one-time link or a password; `email` may be empty on a single machine."""

    personal_team = models.OneToOneField("accounts.Team", on_delete=models.PROTECT, null=True, related_name="personal_of")

    @classmethod
    def with_team(cls, username: str, **fields) -> User:
        """Create a user together with a personal team that the user owns."""
        with transaction.atomic():
            user = cls.objects.create_user(username, **fields)
            team = Team.objects.create(name=username, slug=f"{username}-{secrets.token_hex(3)}")
            Membership.objects.create(team=team, user=user, role=Membership.OWNER)
            user.personal_team = team
            user.save(update_fields=["personal_team"])
            return user


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
    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    role = models.CharField(max_length=10, choices=[(OWNER, "owner"), (MEMBER, "member"), (VIEWER, "viewer")], default=MEMBER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_a_team")]


class SignInLink(models.Model):
    """A one-time link; only the hash of its token is kept."""

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
        """The token to put into the link. Earlier unused links of this user stop working."""
        token = secrets.token_urlsafe(32)
        cls.objects.filter(user=user, used_at=None).delete()
        cls.objects.create(user=user, token_hash=cls.hash(token), expires_at=timezone.now() + lifetime)
        return token

    @classmethod
    def redeem(cls, token: str) -> User | None:
        """The user, exactly once; None for a token that is unknown, used or expired."""
        now = timezone.now()
        claimed = cls.objects.filter(token_hash=cls.hash(token), used_at=None, expires_at__gt=now).update(used_at=now)
        return cls.objects.select_related("user").get(token_hash=cls.hash(token)).user if claimed == 1 else None
