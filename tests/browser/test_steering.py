"""People in the loop, in a real browser: editing a waiting plan, a note that reaches the next prompt, forking the run, and a failing model."""

from __future__ import annotations

import asyncio
import re
import threading
import time

import pytest
from playwright.sync_api import Page, expect

from agents.llm.errors import ModelFailure
from agents.local import LocalVerifier
from agents.settings import Budget, Settings
from tests.engines import engine_of
from tests.unit.agents.agent_fakes import FakeClient
from tests.unit.agents.model_fakes import AskingRoles, FakeModels
from tests.unit.webapp.cast import SOURCE
from webapp.llm.models import Profile
from webapp.runs.live.hub import hub
from webapp.runs.models import Event, Run
from webapp.runs.services import create_run
from webapp.runs.workers.journal import DatabaseJournal, take_lease

pytestmark = pytest.mark.timeout(180)


class Played:
    """Orchestrates one run with the real engine and journal, and with a model and a verifier that respond immediately."""

    def __init__(self, run: Run, models: FakeModels, programs: int = 3):
        self.run, self.models, self.programs = run, models, programs
        self.task: asyncio.Task | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main()))

    async def main(self) -> None:
        from webapp.database import in_thread

        self.loop, self.task = asyncio.get_running_loop(), asyncio.current_task()
        taken = await in_thread(take_lease)(self.run.pk)
        journal = DatabaseJournal(taken.pk, taken.team_id, taken.lease_epoch)
        roles = AskingRoles(self.programs).roles()
        settings = Settings.model_validate(taken.settings)
        verifier = LocalVerifier(journal, FakeClient(), "cpu")
        try:
            await engine_of(journal, verifier, settings, SOURCE, "softmax", roles=roles, models=self.models).execute()
        except asyncio.CancelledError:
            pass
        finally:
            await hub().close()

    def __enter__(self) -> Played:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.thread.is_alive() and self.task is not None:
            self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def run(people) -> Run:
    Profile.objects.create(name="fake", kind="openai", model="fake-1")
    settings = Settings(planner="fake", coder="fake", judge="fake", review_plan=True, budget=Budget(calls=40))
    return create_run(team=people.alice.personal_team, user=people.alice, task_source=SOURCE, title="softmax", settings=settings)


def open_run(page: Page, server: str, run: Run) -> None:
    page.goto(f"{server}/runs/{run.pk}/")


def test_a_plan_is_edited_a_note_is_sent_and_the_run_is_forked(server, sign_in, people, run):
    page = sign_in(people.alice)
    models = FakeModels()
    asked = threading.Event()
    go_on = threading.Event()

    async def hold(key, on_delta):
        if len(models.asked) == 2:  # the coder's first reply is on its way
            asked.set()
            while not go_on.is_set():
                await asyncio.sleep(0.02)

    models.before = hold
    with Played(run, models) as played:
        open_run(page, server, run)
        pause = page.locator("[data-part=pause]")
        expect(pause).to_contain_text("The plan waits for a person's review.", timeout=15000)
        page.get_by_role("link", name="Read and edit the plan").click()
        page.get_by_label("Summary").fill("One pass over the row, by hand")
        page.get_by_label("Strategies").first.fill("row-cache")
        page.get_by_role("button", name="Save and continue").click()
        page.wait_for_url(re.compile(rf"/runs/{run.pk}/$"))
        expect(page.locator("[data-part=entries]")).to_contain_text("One pass over the row, by hand")

        assert asked.wait(15)
        assert "One pass over the row, by hand" in models.asked[1][1]
        expect(page.locator("[data-part=now]")).to_contain_text("is writing")
        page.get_by_label("Note to").select_option("verifier")
        note = page.get_by_label("Note", exact=True)
        note.fill("mind the tails")
        note.press("Enter")
        expect(note).to_have_value("")
        expect(page.locator(".entry.note")).to_contain_text("mind the tails")
        go_on.set()
        played.thread.join(30)
    expect(page.locator("[data-part=status]")).to_contain_text("finished", timeout=15000)
    assert sum("alice: mind the tails" in text for _, text in models.asked) == 1
    page.locator("[data-part=usage] summary").click()
    expect(page.locator("[data-part=usage-table]")).to_contain_text("Planner")
    expect(page.locator("[data-part=usage-table] tbody tr")).to_have_count(3)

    page.goto(f"{server}/runs/{run.pk}/candidates/1/")
    page.get_by_role("link", name="Fork from here").click()
    page.get_by_label("Stop at speedup").fill("40")
    page.get_by_label("Candidates at most").fill("5")
    page.get_by_label("Let me read the plan first").uncheck()
    page.get_by_role("button", name="Fork", exact=True).click()
    page.wait_for_url(lambda url: str(run.pk) not in url and "/runs/" in url)
    forked = Run.objects.exclude(pk=run.pk).get()
    expect(page.locator(".entry.forked")).to_contain_text("up to event")
    again = FakeModels()
    with Played(forked, again, programs=5) as played:
        played.thread.join(40)
    expect(page.locator("[data-part=status]")).to_contain_text("finished", timeout=15000)
    assert not any(call in again.asked for call in models.asked[:3]), "what the parent was told is not asked again"
    assert Event.objects.filter(run=forked, kind="candidate.proposed").count() == 5


@pytest.mark.slow
def test_a_model_that_does_not_answer_says_what_to_do_and_goes_on_at_the_button(server, sign_in, people, run):
    page = sign_in(people.alice)
    Run.objects.filter(pk=run.pk).update(settings=run.settings | {"review_plan": False})
    models = FakeModels()
    models.failures = [ModelFailure("refused", "the server refuses the key", "set FAKE_KEY where the orchestrator runs", attempts=2)]
    with Played(run, models):
        open_run(page, server, run)
        pause = page.locator("[data-part=pause]")
        expect(pause).to_contain_text("The server refuses the key", timeout=15000)
        expect(pause).to_contain_text("To do: set FAKE_KEY where the orchestrator runs")
        expect(page.locator(".entry.llm").first).to_contain_text("no answer")
        time.sleep(0.2)
        assert len(models.asked) == 1
        page.get_by_role("button", name="Resume").click()
        expect(page.locator("[data-part=status]")).to_contain_text("finished", timeout=30000)
        expect(pause).to_be_hidden()
