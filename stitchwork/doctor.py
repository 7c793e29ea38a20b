"""Checks what this machine needs to get a verdict: login, server, token, devices."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, dataclass
from typing import Any

from stitchwork.api import Api, ApiError
from stitchwork.login import Login, NoLogin, exposed, read_login, readable_by_others


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    found: str
    fix: str = ""
    needed: bool = True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def examine() -> list[Check]:
    """Returns the checks in the order of their dependencies. Checks that cannot be performed are left out."""
    checks = [_mcp()]
    try:
        login = read_login()
    except NoLogin as error:
        return [Check("login", False, str(error), "stitchwork login URL"), *checks]
    return [*_login(login), *_server(Api(login)), *checks]


def _login(login: Login) -> list[Check]:
    checks = [Check("login", True, f"{login.url}, from {login.source}")]
    if readable_by_others():
        checks.append(
            Check("privacy of the token", False, "others on this machine can read the file", "run `stitchwork login URL` again", needed=False)
        )
    if exposed(login.url):
        checks.append(Check("encryption", False, "the token travels in the clear", "use https:// except on this machine", needed=False))
    return checks


def _server(api: Api) -> list[Check]:
    try:
        me = api.get("/me")
    except ApiError as error:
        name = "token" if error.status in (401, 403) else "server"
        fix = (
            "create a token on the page Account, Tokens; then run `stitchwork login`"
            if name == "token"
            else "check the address, and whether the server is running"
        )
        return [Check(name, False, str(error), fix)]
    scopes = ", ".join(me["scopes"]) or "no scope"
    checks = [Check("token", True, f"{me['user']} in team {me['team']['name']} ({me['team']['role']}), may {scopes}")]
    missing = [scope for scope in ("read", "submit", "verify") if scope not in me["scopes"]]
    if missing:
        checks.append(Check("scopes", False, f"the token lacks {', '.join(missing)}", "create one with these scopes if you need them", needed=False))
    if me["team"]["role"] == "viewer":
        checks.append(Check("role", False, "a viewer may look, but not start anything", "an owner of the team can make you a member", needed=False))
    kinds = api.get("/devices")["kinds"]
    for kind in kinds:
        told = f"{kind['online']} online, {kind['waiting']} waiting"
        fix = "start a verifier: docs/how-to/gpu-host.md" if kind["kind"] == "cuda" else "start a verifier, for example with `make run`"
        checks.append(Check(f"device {kind['kind']}", kind["online"] > 0, told, fix, needed=False))
    return checks


def _mcp() -> Check:
    there = importlib.util.find_spec("mcp") is not None
    return Check(
        "MCP server", there, "the package mcp is installed" if there else "the package mcp is missing", "pip install 'stitchwork[mcp]'", needed=False
    )
