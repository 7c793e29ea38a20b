"""Tests the life cycle of a team: its creation, an invitation link, roles, a token, two-factor, the audit log, and a removed member's immediate loss
of access."""

from __future__ import annotations

import re

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from playwright.sync_api import Browser, Page, expect

from webapp.accounts.models import Membership, Team, User

PASSWORD = "correct horse staple"


def code_of(secret: str, server_time: int) -> str:
    return format_hotp_value(hotp_value(secret, server_time // 30))


def test_a_team_from_its_making_to_its_audit_log(server, people, sign_in, browser: Browser):
    page: Page = sign_in(people.alice)
    page.goto(f"{server}/account/")
    page.get_by_label("New team").fill("Kernel group")
    page.get_by_role("button", name="Make a team").click()
    expect(page.get_by_role("heading", name="Kernel group", level=1)).to_be_visible()
    expect(page.get_by_role("button", name="Team Kernel group: switch")).to_be_visible()

    page.get_by_label("Note (optional)").fill("for Dana")
    page.get_by_role("button", name="Make a link").click()
    link = page.locator("#invitation-link").inner_text().strip()
    page.goto(page.url.replace("invitations/", ""))
    expect(page.locator("#invitation-link")).to_have_count(0)

    # Opens a separate browser for a new user.
    theirs = browser.new_context().new_page()
    theirs.goto(link)
    expect(theirs.get_by_text("alice invites you")).to_be_visible()
    theirs.get_by_role("link", name="Make an account").click()
    theirs.get_by_label("Name").fill("dana")
    theirs.get_by_label("Password").fill(PASSWORD)
    theirs.get_by_label("The same again").fill(PASSWORD)
    theirs.get_by_role("button", name="Make an account").click()
    expect(theirs.get_by_role("button", name="Team Kernel group: switch")).to_be_visible()
    team = Team.objects.get(name="Kernel group")
    assert Membership.objects.get(team=team, user__username="dana").role == "member"

    page.reload()
    page.get_by_label("Role of dana").select_option("viewer")
    expect(page.get_by_text("dana is viewer now.")).to_be_visible()
    theirs.goto(f"{server}/submit/")
    expect(theirs.get_by_text("You can view this team but not change it")).to_be_visible()
    page.get_by_role("button", name="Remove dana").click()
    expect(page.get_by_text("dana was removed from the team")).to_be_visible()
    assert theirs.goto(f"{server}/teams/{team.pk}/").status == 404
    theirs.goto(server)
    expect(theirs.get_by_role("button", name="Team Personal: switch")).to_be_visible()
    theirs.context.close()

    page.get_by_role("link", name="Audit log").click()
    rows = page.locator("table.audit tbody tr")
    expect(rows.first).to_contain_text("member removed")
    page.get_by_label("What").select_option("member.role")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("member → viewer")
    expect(rows.first).to_contain_text("127.0.0.1")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "member → viewer" in download.value.path().read_text()


def test_two_factor_on_and_used(server, people, sign_in):
    alice = User.objects.get(pk=people.alice.pk)
    alice.set_password(PASSWORD)
    alice.save()
    page = sign_in(alice)
    page.goto(f"{server}/account/two-factor/")
    page.get_by_role("link", name="Turn it on").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Go on").click()
    secret = page.locator("#totp-key").inner_text().strip()
    now = page.evaluate("Math.floor(Date.now() / 1000)")
    page.get_by_label(re.compile("Type the code")).fill(code_of(secret, now))
    page.get_by_role("button", name="Turn it on").click()
    codes = page.locator("#recovery-codes").inner_text().split()
    assert len(codes) == 10
    page.get_by_role("button", name="Sign out").click()

    page.get_by_label("Name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Code").fill("000000")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("This code is wrong")).to_be_visible()
    page.get_by_label("Code").fill(codes[0])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Team Personal: switch")).to_be_visible()


@pytest.mark.slow
def test_a_token_is_shown_once_and_the_team_is_switched_by_keyboard(server, people, sign_in):
    page = sign_in(people.bob)
    page.goto(f"{server}/account/tokens/")
    page.get_by_label("What is it for?").fill("CI")
    page.get_by_label("submit").check()
    page.get_by_role("button", name="Make a token").click()
    assert page.locator("#new-token").inner_text().strip().startswith("sw_")
    page.goto(f"{server}/account/tokens/")
    expect(page.locator("#new-token")).to_have_count(0)
    row = page.get_by_role("row").filter(has_text="CI")
    expect(row).to_contain_text("read, submit")
    row.get_by_role("button", name="Revoke CI").click()
    expect(page.get_by_role("row").filter(has_text="CI")).to_contain_text("revoked")

    opener = page.get_by_role("button", name="Team alice: switch")
    opener.focus()
    page.keyboard.press("ArrowDown")
    page.get_by_role("button", name="Personal", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Team Personal: switch")).to_be_visible()
