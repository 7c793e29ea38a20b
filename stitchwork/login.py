"""The server's address and the user's token, from STITCHWORK_URL and STITCHWORK_TOKEN or else from the file that `stitchwork login` saved."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

URL, TOKEN = "STITCHWORK_URL", "STITCHWORK_TOKEN"
LOCAL = ("localhost", "127.0.0.1", "::1")


class NoLogin(Exception):
    """Raised if the address of Stitchwork or the token is unknown. The message says what to do."""


@dataclass(frozen=True)
class Login:
    url: str  # without a trailing slash
    token: str
    source: str  # where the login came from, as shown to people


def kept_at() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "stitchwork" / "login.json"


def read_login() -> Login:
    """Returns the current login. Raises `NoLogin`."""
    kept = _kept()
    url, token = os.environ.get(URL) or kept.get("url", ""), os.environ.get(TOKEN) or kept.get("token", "")
    if os.environ.get(URL) and not os.environ.get(TOKEN) and kept.get("url") != clean_url(os.environ[URL]):
        token = ""  # a token is sent only to the server for which it was saved
    if not url:
        raise NoLogin(f"there is no login: run `stitchwork login URL`, or set {URL} and {TOKEN}")
    if not token:
        raise NoLogin(f"there is no token for {url}: run `stitchwork login {url}`, or set {TOKEN} (create one on the page Account, Tokens)")
    source = "the environment" if os.environ.get(TOKEN) else str(kept_at())
    return Login(clean_url(url), token, source)


def clean_url(text: str) -> str:
    """Returns an installation's address in the form that is saved. Raises `NoLogin` if it is not an address."""
    parts = urlsplit(text.strip() if "://" in text else f"https://{text.strip()}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoLogin(f"{text!r} is not an address: it looks like https://stitchwork.example.org")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def exposed(url: str) -> bool:
    """Returns whether a token would be sent unencrypted over a network."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in LOCAL


def keep_login(url: str, token: str) -> Path:
    """Writes the file, which has mode 0600 from the moment it is created."""
    path = kept_at()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"url": url, "token": token}, file)
    draft.replace(path)
    return path


def forget_login() -> bool:
    try:
        kept_at().unlink()
    except FileNotFoundError:
        return False
    return True


def readable_by_others() -> bool:
    try:
        return bool(stat.S_IMODE(kept_at().stat().st_mode) & 0o077)
    except OSError:
        return False


def _kept() -> dict[str, str]:
    try:
        kept = json.loads(kept_at().read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NoLogin(f"{kept_at()} cannot be read ({error}): run `stitchwork login URL` again") from None
    return kept if isinstance(kept, dict) else {}
