"""The restrictions of `SANDBOX=none`, which is meant for a single account on a loopback interface.

A second person must not be able to sign in or to see the output of an unconfined program.
"""

from __future__ import annotations

from django.core.exceptions import PermissionDenied

from verifier.confinement.probe import CHOICE, waived


def refuse(what: str) -> None:
    """Raises `PermissionDenied` if this installation runs without a sandbox. `what` names the unavailable feature, such as "invitations"."""
    if waived():
        raise PermissionDenied(f"There are no {what} while {CHOICE}=none: without a sandbox this installation is for one account on this machine.")
