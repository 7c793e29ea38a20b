"""allauth's forms in our design: labels instead of placeholders, errors tied to their fields, no code twice."""

from __future__ import annotations

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


class Plain:
    def __init__(self, *args, **kwargs):
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


class Once(Plain):
    """allauth remembers a used code for one period; we take the neighbouring periods' codes too, so it has to be remembered over all of them."""

    def clean_code(self) -> str:
        code = super().clean_code()
        periods = 2 * settings.MFA_TOTP_TOLERANCE + 1
        digits = "".join(character for character in code if character.isdigit())
        if not cache.add(f"two-factor used {self.user.pk} {digits}", 1, timeout=30 * periods):
            raise forms.ValidationError("This code was used already: wait for the next one.")
        return code


class AuthenticateForm(Once, two_factor.AuthenticateForm):
    pass


class ReauthenticateByCodeForm(Once, two_factor.ReauthenticateForm):
    pass
