"""allauth's forms in our design, with labels instead of placeholders and with errors linked to their fields. No code is accepted twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allauth.account import forms as account
from allauth.mfa.base import forms as two_factor
from allauth.mfa.totp import forms as totp
from django import forms
from django.conf import settings
from django.core.cache import cache

PASSWORD_HELP = "At least 10 characters, not a common password, not like your name."
LABELS = {
    "login": "Name",
    "username": "Name",
    "email": "Email address",
    "oldpassword": "Present password",
    "password": "Password",
    "code": "Code",
}
HELP = {"password1": PASSWORD_HELP}


# The forms below are mixins for allauth's forms, which have no types. For type checking, this base class stands in for them.
if TYPE_CHECKING:
    FormBase = forms.Form
else:
    FormBase = object


class Plain(FormBase):
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            field.widget.attrs.pop("placeholder", None)
            field.label = LABELS.get(name, field.label)
            field.help_text = HELP.get(name, "")
            if name == "code":
                field.widget.attrs |= {"inputmode": "numeric", "spellcheck": "false"}


class LoginForm(Plain, account.LoginForm):
    pass


class SignupForm(Plain, account.SignupForm):
    pass


class ChangePasswordForm(Plain, account.ChangePasswordForm):
    pass


class SetPasswordForm(Plain, account.SetPasswordForm):
    pass


class ResetPasswordForm(Plain, account.ResetPasswordForm):
    pass


class ResetPasswordKeyForm(Plain, account.ResetPasswordKeyForm):
    pass


class ReauthenticateForm(Plain, account.ReauthenticateForm):
    pass


class AddEmailForm(Plain, account.AddEmailForm):
    pass


class ActivateTOTPForm(Plain, totp.ActivateTOTPForm):
    pass


if TYPE_CHECKING:
    from allauth.mfa.base.forms import AuthenticateForm as ByCode  # a base class of every class that uses `Once`
else:
    ByCode = object


class Once(Plain, ByCode):
    """Accepts each code only once. allauth remembers a used code for one period, but we also accept the codes of the adjacent periods, so a used code
    must be remembered for all three."""

    def clean_code(self) -> str:
        code: str = super().clean_code()
        periods = 2 * settings.MFA_TOTP_TOLERANCE + 1
        digits = "".join(character for character in code if character.isdigit())
        if not cache.add(f"two-factor used {self.user.pk} {digits}", 1, timeout=30 * periods):
            raise forms.ValidationError("This code was used already: wait for the next one.")
        return code


class AuthenticateForm(Once, two_factor.AuthenticateForm):
    pass


class ReauthenticateByCodeForm(Once, two_factor.ReauthenticateForm):
    pass
