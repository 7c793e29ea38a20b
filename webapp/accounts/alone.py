"""`SANDBOX=none` is for one account on loopback: nothing here lets a second person in, or shows them what an unconfined program said."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied

from verifier.confinement.probe import CHOICE, waived


def refuse(what: str) -> None:
    """Raises `PermissionDenied` where this installation runs without a sandbox. `what`: of what there is none, such as "invitations"."""
    if waived():
        raise PermissionDenied(f"There are no {what} while {CHOICE}=none: without a sandbox this installation is for one account on this machine.")
