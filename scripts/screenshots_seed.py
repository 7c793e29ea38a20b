"""Fills a fresh installation for the screenshots: the real H200 runs of examples/traces in a team of three, with comments and share links.

Run by scripts/screenshots.py through `manage.py shell`. Prints the URLs as JSON.
"""

from __future__ import annotations

import json
import os
from urllib.parse import urlencode

from django.test import RequestFactory
from django.urls import reverse

from webapp.accounts import teams
from webapp.accounts.first_user import first_user
from webapp.accounts.models import Membership, SignInLink, User
from webapp.environment import ROOT
from webapp.knowledge.documents import save
from webapp.review import services, shares, verdicts
from webapp.runs.models import Candidate, Event, Run
from webapp.runs.trace.on_disk import import_trace
from webapp.tasks.models import Task

NOTES = """# Reductions over rows on an H200

## Memory

A row that fits into shared memory is read once: keep it there between the sum of squares and the scaling.

## Launches

Below 1 ms the launch gap is a large part of the time; one kernel a row group beats two passes that are each faster.
"""


def request_of(user: User, team):
    request = RequestFactory().post("/")
    request.user, request.team, request.session = user, team, {}
    return request


def compared(sides: list[str]) -> str:
    return f"{reverse('compare:compare')}?{urlencode([('with', side) for side in sides])}"


def seed() -> dict:
    ada = first_user()
    ada.username = "ada"
    ada.set_password(os.environ["SCREENSHOT_PASSWORD"])
    ada.save()
    team = ada.personal_team  # includes what a fresh installation contains
    team.name = "Kernel lab"
    team.save()
    ada.make_personal_team()
    ada.last_team = team
    ada.save()
    grace, alan = User.with_team("grace"), User.with_team("alan")
    Membership.objects.create(team=team, user=grace, role=Membership.MEMBER)
    Membership.objects.create(team=team, user=alan, role=Membership.VIEWER)
    by_ada, by_grace = request_of(ada, team), request_of(grace, team)

    runs = {name: import_trace(ROOT / "examples/traces" / name, team, ada) for name in ("attention", "lstm_cell_loop", "rms_norm")}
    run = runs["rms_norm"]
    best = Candidate.objects.select_related("timeline").get(run=run, number=run.best_candidate)
    decision = Event.objects.filter(run=run, kind="decision.made").order_by("seq").first()
    question = "All of its time is in own kernels. @ada is the *first* launch part of the interval?"
    talk = services.open_thread(by_grace, run, {"kind": "candidate", "candidate": best.number}, question)
    services.reply(by_ada, talk, "No: warm-up calls are left out. The blocks of the report show every measured ratio.")
    if decision is not None:
        services.open_thread(by_ada, run, {"kind": "event", "seq": decision.seq}, "Reason, and what came of it: worth reading before the next run.")
    verdicts.give(by_grace, run, best.number, "accepted", "Read the source and the report: evidence is complete.")
    save(team=team, user=ada, title="Reductions over rows on an H200", kind="markdown", text=NOTES)
    teams.invite(by_ada, team, Membership.MEMBER, days=7, most_uses=3, note="the compiler group")
    share = shares.make(by_ada, run, place="", days=7, comments=True)
    Run.objects.filter(pk__in=[one.pk for one in runs.values()]).update(published=False)

    own = reverse("runs:run", args=[run.pk])
    candidate = reverse("runs:candidate", args=[run.pk, best.number])
    task = Task.objects.get(pk=run.task_id)
    places = {
        "sign_in": reverse("accounts:sign_in_link", args=[SignInLink.issue(ada)]),
        "run": own,
        "candidate": candidate,
        "diff": reverse("diffs:diff", args=[run.pk, f"task...{best.number}"]),
        "timeline": reverse("runs:timeline", args=[run.pk, best.timeline.sha]),
        "task": reverse("tasks:task", args=[task.pk]),
        "team": reverse("accounts:team", args=[team.pk]),
        "audit": reverse("accounts:audit", args=[team.pk]),
        "share": reverse("review:shared", args=[shares.token_of(share)]),
        "shares": reverse("review:shares", args=[run.pk]),
        "verdict": reverse("review:verdict", args=[run.pk, best.number]),
    }
    tried = Candidate.objects.filter(run=run, verification__status="passed").exclude(number=best.number).order_by("number")[:3]
    programs = [f"{run.pk}:{number}" for number in (*(one.number for one in tried), best.number)]
    places["compare"] = compared(programs)
    places["compare_runs"] = compared([str(one.pk) for one in runs.values()])
    places["compare_choose"] = compared([str(run.pk)])
    return places


print("SEEDED " + json.dumps(seed()))
