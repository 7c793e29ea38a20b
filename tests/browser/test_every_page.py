"""Every page in the URL configuration: WCAG as checked by axe, light and dark, 390 and 1440 px, the console, widths, titles, text sizes, layout
shifts. The pages are filled with one object of each kind, including a real run from an H200 (tests/unit/webapp/isolation/world.py): a page whose URL
parameters are not covered there fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from allauth.account.forms import default_token_generator
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser import sample_run
from tests.browser.addresses import Pattern, patterns
from tests.served import daphne
from tests.unit.webapp.cast import make_user
from tests.unit.webapp.isolation.world import World, make_world, unfilled
from tests.unit.webapp.people import make_result
from webapp.accounts.models import Membership, SignInLink, Team, User
from webapp.arena.models import Arena
from webapp.environment import ROOT
from webapp.fleet.models import Device
from webapp.knowledge.models import Document
from webapp.leaderboard.models import Suite as RankedSuite
from webapp.llm.models import Announcement, Profile
from webapp.notifications.models import Hook
from webapp.review import shares
from webapp.review.models import Share
from webapp.runs.models import Run
from webapp.runs.trace.append import append
from webapp.tasks.models import Suite, Task

AXE = ROOT / "node_modules/axe-core/axe.min.js"
CHECKS = ROOT / "tests/browser/page_checks.js"
WIDTHS = (1440, 390)
LONG = "name_without_a_space_to_break_at_" * 2 + "of_80_letters_"
LOW = {"width": 1280, "height": 720}  # a small laptop, where elements that take the remaining height get little space
BROWSERS = 2  # run concurrently
MOST_SHIFT = 0.05  # layout shift while a page loads; up to 0.1 is "good" (web.dev/cls)
MOST_LIVE_SHIFT = 0.01  # layout shift while a page is being read and receives updates
# The same page in another state: maps a URL's name to queries, with the world's parameters.
STATES = {
    "runs:candidate": ["?tab=report", "?tab=kernels", "?tab=timeline", "?tab=source"],
    "runs:list": ["?q=nothing-has-this-name"],
    "knowledge:documents": ["?q=bank"],
    "compare:compare": ["?with={run_id}", "?with={run_id}&with={run_id}:{number}"],
}
# The application's API, which has its own tests.
NO_PAGES = ("api:",)
# Pages that respond with an error status by design: used links, pages that need mail or two-factor to be set up first, and pages that need more than
# their URL.
ON_PURPOSE = {
    "accounts:sign_in_link": 410, "accounts:invitation": 410, "review:shared": 410, "account_reset_password": 404, "account_reset_password_done": 404,
    "account_reset_password_from_key": 404, "account_reset_password_from_key_done": 404, "account_email": 404, "account_email_verification_sent": 404,
    "account_confirm_email": 404, "account_reauthenticate": 403, "mfa_reauthenticate": 403, "mfa_deactivate_totp": 404,
    "mfa_view_recovery_codes": 404, "mfa_download_recovery_codes": 404, "": 404,
}  # fmt: skip

PASSWORD = "correct horse battery"

pytestmark = pytest.mark.timeout(900)


class Swept:
    """The pages to check, found by requesting every URL once without a browser."""

    def __init__(self, world: World, owner: User):
        self.problems = [f"{name}: tests/unit/webapp/isolation/world.py does not fill it" for name in unfilled(world)]
        self.pages: dict[str, list[str]] = {"owner": [], "nobody": []}
        self.left_out: list[str] = []
        self.signed_in = Client()
        self.signed_in.force_login(owner)
        for pattern in patterns():
            if not pattern.name.startswith(NO_PAGES) and world.fills(pattern) is not None:
                for query in ("", *STATES.get(pattern.name, [])):
                    self._ask(pattern, world.address(pattern) + query.format_map(world.by_parameter), world.data(pattern))

    def _ask(self, pattern: Pattern, path: str, data: dict) -> None:
        answer, who = self.signed_in.get(path, data or None), "owner"
        if answer.status_code in (301, 302):  # redirects from the sign-in pages, because the user is signed in
            answer, who = Client().get(path), "nobody"
        if answer.status_code in (405, 301, 302):  # accepts only forms, or redirects
            self.left_out.append(f"{pattern.name} {answer.status_code}")
        elif answer["Content-Type"].startswith("application/json"):
            pass
        elif answer.status_code not in (200, ON_PURPOSE.get(pattern.name)):
            self.problems.append(f"{pattern.name}: {path} answered {answer.status_code}: fill it in tests/unit/webapp/isolation/world.py")
        elif answer["Content-Type"].startswith("text/html") and b"<html" in b"".join(answer)[:4000]:
            self.pages[who].append(path)


def prepare(browser: Browser, *, bypass_csp: bool = False) -> tuple[BrowserContext, Page, list[str]]:
    """Returns a context, a page that checks itself, and its console messages, which include whatever the page's policy refuses unless it is
    bypassed."""
    context = browser.new_context(reduced_motion="reduce", bypass_csp=bypass_csp)
    for script in (AXE, CHECKS):
        context.add_init_script(path=script)
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(f"script: {error}"))
    # Excludes the message about an error page, which is opened on purpose.
    refused = "the server responded with a status of 4"
    page.on("console", lambda message: said.append(f"console: {message.text}") if message.type == "error" and refused not in message.text else None)
    return context, page, said


def look_at(page: Page, url: str, said: list[str]) -> list[str]:
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900 if width > 1000 else 844})
        page.emulate_media(color_scheme="light")
        said.clear()
        page.goto(url, wait_until="load")
        if page.url.partition("#")[0] != url and "/share/" not in url:
            return [f"led to {page.url}"]
        wrong = page.evaluate("pageChecks.all()")
        shift = page.evaluate("pageChecks.shift()")
        if shift > MOST_SHIFT:
            wrong.append(f"shifted by {shift:.3f} while it loaded: {page.evaluate('pageChecks.shifts()')}")
        if width > LOW["width"]:
            page.set_viewport_size(LOW)
            page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
            wrong += [f"at 1280x720: {sentence}" for sentence in page.evaluate("pageChecks.layout()")]
        page.emulate_media(color_scheme="dark")
        wrong += [f"dark: {sentence}" for sentence in page.evaluate("pageChecks.colours()")]
        found += [f"{width} px: {sentence}" for sentence in [*wrong, *said]]
    return found


@pytest.fixture
def world(transactional_db) -> Iterator[World]:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make assets")
    world = make_world()
    owner = world.people[Membership.OWNER]
    make_result(owner, ratio=2.0, device="cpu")
    Announcement.objects.create(file="llm.toml")
    Profile.objects.create(name="fast", kind="openai", model="m-1", key_variable="EXAMPLE_KEY", details={"max_tokens": 4096})
    lengthen_names(world)
    yield world
    world.clear()


def lengthen_names(world: World) -> None:
    """Uses names as long as those in real programs. No page may become wider because of them."""
    named = [(Team.objects.filter(pk=world.team.pk), "name"), (Run.objects, "title"), (Document.objects, "title")]
    named += [(model.objects, "name") for model in (Task, Suite, Arena, Hook, RankedSuite)]
    for rows, field in named:
        rows.update(**{field: LONG[: rows.model._meta.get_field(field).max_length]})


def another_owner(world: World, name: str) -> User:
    user = make_user(name)
    Membership.objects.create(team=world.team, user=user, role=Membership.OWNER)
    user.last_team = world.team
    user.save(update_fields=["last_team"])
    return user


def look_through(executable: str | None, base: str, link: str, paths: list[str]) -> list[str]:
    """Checks pages in a separate thread with its own browser, signed in through `link` or not signed in at all."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        context, page, said = prepare(browser)
        if link:
            page.goto(base + link)
        problems = [f"{path} at {sentence}" for path in paths for sentence in look_at(page, base + path, said)]
        browser.close()
    return problems


@pytest.mark.slow
def test_every_page(server, browser_type_launch_args, world):
    owner = world.people[Membership.OWNER]
    swept = Swept(world, owner)
    swept.pages["nobody"].append(f"/share/{shares.token_of(Share.objects.get(pk=world.by_parameter['share_id']))}/")
    pages = swept.pages["owner"]
    people = [owner, *[another_owner(world, f"owner-{number}") for number in range(1, BROWSERS)]]  # a new link would invalidate the previous one
    links = [f"/sign-in/{SignInLink.issue(person)}/" for person in people]
    began = time.monotonic()
    with ThreadPoolExecutor(BROWSERS) as threads:
        executable = browser_type_launch_args["executable_path"]
        halves = [threads.submit(look_through, executable, server, link, pages[at::BROWSERS]) for at, link in enumerate(links)]
        problems = swept.problems + [problem for half in halves for problem in half.result()]
        problems += threads.submit(look_through, executable, server, "", swept.pages["nobody"]).result()
    count = sum(map(len, swept.pages.values()))
    print(f"{count} pages in {time.monotonic() - began:.0f} s; without a page of their own: {', '.join(swept.left_out)}")
    assert not problems, f"{len(problems)} problems on {count} pages:\n" + "\n".join(problems)
    assert count > 50


@pytest.mark.slow  # needs a separate server
def test_pages_of_mail_and_of_two_factor(browser, django_db_setup, people):
    """With mail set up and two-factor enabled, checks the pages for resetting a password, confirming an address, entering codes, and disabling
    two-factor."""
    alice, secret = people.alice, generate_totp_secret()
    alice.set_password(PASSWORD)
    alice.email = "alice@example.org"
    alice.save()
    address = EmailAddress.objects.create(user=alice, email="alice@example.org", primary=True, verified=False)
    TOTP.activate(alice, secret)
    RecoveryCodes.activate(alice)
    reset = f"/password/new/{user_pk_to_url_str(alice)}-{default_token_generator.make_token(alice)}/"
    wrong: list[str] = []

    def look(path: str = "") -> None:
        """Checks the page at this path, or the browser's current page."""
        wrong.extend(f"{path} at {sentence}" for sentence in look_at(page, server + path if path else page.url, said))

    with daphne(EMAIL_HOST="127.0.0.1", SECRET_KEY=settings.SECRET_KEY) as server:
        context, page, said = prepare(browser)
        for path in ("/sign-in/", "/sign-up/", "/password/forgotten/", "/password/forgotten/sent/", "/password/new/done/", "/password/new/1-spent/"):
            look(path)
        page.goto(server + reset)
        look()  # the link leads to a form
        page.goto(f"{server}/sign-in/{SignInLink.issue(alice)}/")
        expect(page).to_have_url(f"{server}/sign-in/code/")
        look()
        page.get_by_label("Code").first.fill(format_hotp_value(hotp_value(secret, int(time.time()) // 30)))
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
        for path in ("/account/", "/account/email/", "/account/email/sent/", f"/account/email/{EmailConfirmationHMAC(address).key}/"):
            look(path)
        for path in ("/account/password/", "/account/confirm/", "/account/confirm/code/", "/account/two-factor/"):
            look(path)
        page.goto(f"{server}/account/confirm/?next=/account/two-factor/")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{server}/account/two-factor/")
        for path in ("/account/two-factor/codes/", "/account/two-factor/codes/new/", "/account/two-factor/off/"):
            look(path)
        context.close()
    assert not wrong, f"{len(wrong)} problems:\n" + "\n".join(wrong)


def test_pages_that_are_refused_keep_the_same(server, browser, people):
    context, page, said = prepare(browser)
    page.goto(f"{server}/sign-in/{SignInLink.issue(people.alice)}/")
    for path in ("/no/such/page", "/submit/?example=none"):
        wrong = look_at(page, server + path, said)
        assert not wrong, "\n".join([path, *wrong])
    context.close()


@pytest.mark.slow
def test_news_moves_nothing(server, browser, people):
    """The text that someone is reading stays in place while a run plays, a device comes and goes, and a run ends."""
    run = sample_run.create_run(people.alice)
    batches = [[event for event in batch if event.payload.get("of") is None] for batch in sample_run.story(run)]
    half = len(batches) // 2
    for batch in batches[:half]:
        append(run.pk, batch)
    Device.objects.create(worker="w1", kind="cpu", device="cpu", name="Example CPU", model="cpu-x86_64-2c", queue="verify.cpu")
    context, page, _ = prepare(browser, bypass_csp=True)  # Playwright queries the page with code that it evaluates there
    page.goto(f"{server}/sign-in/{SignInLink.issue(people.alice)}/")
    others = [context.new_page() for _ in range(2)]
    pages = dict(zip((f"/runs/{run.pk}/", "/", "/devices/"), (page, *others), strict=True))
    for path, shown in pages.items():
        shown.set_viewport_size({"width": 1440, "height": 900})
        shown.goto(server + path)
    page.wait_for_function("document.querySelectorAll('.entry').length > 4")
    before = {path: shown.evaluate("pageChecks.shift()") for path, shown in pages.items()}
    for batch in batches[half:]:
        append(run.pk, batch)
    Device.objects.update(busy_with="softmax")
    for shown in others:
        shown.evaluate("document.querySelectorAll('[hx-trigger]').forEach((element) => element.dispatchEvent(new CustomEvent('tick')))")
    page.wait_for_function("document.querySelector('[data-part=outcome]').textContent.includes('Faster (confirmed)')", timeout=20_000)
    assert Run.objects.get(pk=run.pk).state == "finished"
    others[0].wait_for_function("document.querySelector('table.runs').textContent.includes('Faster (confirmed)')", timeout=20_000)
    for path, shown in pages.items():
        shift = shown.evaluate("pageChecks.shift()") - before[path]
        assert shift <= MOST_LIVE_SHIFT, f"{path} shifted by {shift:.3f}: {shown.evaluate('pageChecks.shifts()')}"
    context.close()
