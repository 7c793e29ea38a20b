"""Two teams with people in every role, and one object of each kind in the first. A URL parameter without a value here fails the test: for every new
page, add whatever its address names."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from agents.events import NewEvent
from tests.browser.addresses import Pattern, patterns
from tests.unit.webapp.cast import SOURCE, make_user
from tests.unit.webapp.learning import trainings
from webapp.accounts import teams, tokens
from webapp.accounts.models import Membership, Team, User
from webapp.arena.models import Arena, ArenaRun
from webapp.diffs.models import MeasuredDiff
from webapp.environment import ROOT
from webapp.fleet.models import Device
from webapp.knowledge.documents import save
from webapp.leaderboard.models import Entry, Result
from webapp.leaderboard.models import Suite as RankedSuite
from webapp.llm.models import Letter, Replay
from webapp.notifications.models import Hook
from webapp.review import services, shares
from webapp.review.models import Notification
from webapp.runs.models import Candidate, Event, Run
from webapp.runs.trace.append import append
from webapp.runs.trace.on_disk import import_trace
from webapp.tasks.models import Suite, Task, TryOut

MARK = "quokka-7431"  # in every text of team A: no one in team B may ever read it
ROLES = (Membership.OWNER, Membership.MEMBER, Membership.VIEWER)
# Parameters that name nothing belonging to a team: the installation's own objects, and links intended for anyone who has them.
OPEN_PARAMETERS: dict[str, Any] = {"slug": "softmax", "name": "fuse-row-reduction", "token": "invented", "key": "invented", "uidb36": "1"}


@dataclass
class World:
    team: Team  # A, to which the requested objects belong
    people: dict[str, User]  # members of A, by role
    strangers: dict[str, User]  # members of B, by role
    other: Team
    run: Run
    theirs: Run  # a run of B's
    by_parameter: dict[str, Any] = field(default_factory=dict)
    by_name: dict[tuple[str, str], Any] = field(default_factory=dict)  # (URL name, parameter); these take precedence over `by_parameter`

    def fills(self, pattern: Pattern) -> dict[str, Any] | None:
        """Returns the arguments for the URL, or None if a parameter is unknown here."""
        known = OPEN_PARAMETERS | self.by_parameter
        found = {p: self.by_name.get((pattern.name, p), known.get(p)) for p in pattern.parameters}
        return None if any(value is None for value in found.values()) else found

    def of_team(self, pattern: Pattern) -> bool:
        return any(p not in OPEN_PARAMETERS for p in pattern.parameters)

    def address(self, pattern: Pattern, **instead: Any) -> str:
        if not pattern.name:
            return "/" + pattern.route.strip("^$").partition("(")[0]
        return reverse(pattern.name, kwargs=(self.fills(pattern) or {}) | instead)

    def data(self, pattern: Pattern) -> dict[str, Any]:
        """Returns the input that the page requires before it does anything else."""
        chosen = {"source": SOURCE, "device": "cpu", "precision": "fp32-strict", "mode": "train"}
        best = self.by_parameter["number"]
        return {"diffs:choose": {"old": "task", "new": str(best)}, "diffs:rows": {"part": "0"}, "tasks:try": chosen}.get(pattern.name, {})

    def clear(self) -> None:
        """Deletes objects on disk, which a rollback does not cover."""
        shutil.rmtree(settings.LEARNING_DIR, ignore_errors=True)

    def token(self, user: User, team: Team, *scopes: str) -> str:
        return tokens.issue(user, team, f"{'+'.join(scopes)}", scopes or list(tokens.SCOPES))[1]


def unfilled(world: World) -> list[str]:
    return [f"{p.name or p.route}: {', '.join(p.parameters)}" for p in patterns() if world.fills(p) is None]


def make_team(name: str, prefix: str) -> tuple[Team, dict[str, User]]:
    people = {role: make_user(f"{prefix}-{role}") for role in ROLES}
    team = Team.objects.create(name=name, slug=name)
    for role, user in people.items():
        Membership.objects.create(team=team, user=user, role=role)
        user.last_team = team
        user.save(update_fields=["last_team"])
    return team, people


def make_world() -> World:
    team, people = make_team(f"team-{MARK}", MARK)
    other, strangers = make_team("others", "others")
    owner = people[Membership.OWNER]
    request = RequestFactory().post("/")
    request.user, request.session = owner, {}
    run = import_trace(ROOT / "examples/traces/rms_norm", team, owner, f"run {MARK}")
    run.task.name = f"task {MARK}"
    run.task.suite = Suite.objects.create(team=team, name=f"suite {MARK}", slug="suite")
    run.task.save()
    Run.objects.filter(pk=run.pk).update(outcome="improved")
    exchange = {"key": "call-1", "profile": "p", "model": "m", "purpose": "coder", "role": "coder"}
    asked, _ = append(run.pk, [NewEvent(kind="llm.requested", agent="coder", payload=exchange), NewEvent(kind="llm.completed", payload=exchange)])
    waiting = Run.objects.create(team=team, task=run.task, title=f"waiting {MARK}", state="running", created_by=owner)
    best = Candidate.objects.get(run=run, number=run.best_candidate)
    thread = services.open_thread(request, run, {"kind": "run"}, f"comment {MARK}")
    comment = thread.comments.get()
    share = shares.make(request, run, place="", days=7, comments=True)
    notice = Notification.objects.create(user=owner, kind="thread", run=run, thread=thread, comment=comment, actor=people[Membership.MEMBER])
    arena = Arena.objects.create(team=team, name=f"arena {MARK}", settings={"tasks": [MARK], "workflows": ["stitch"]}, created_by=owner)
    ArenaRun.objects.create(arena=arena, run=waiting, seed=1)
    document = save(team=team, user=owner, title=f"document {MARK}", kind="text", text=f"bank conflicts {MARK}")
    letter = Letter.objects.create(
        name=MARK,
        team=team,
        run=waiting,
        profile="by-hand",
        waiting={"request": {"purpose": "coder", "messages": [{"role": "user", "content": MARK}]}},
    )
    replay = Replay.objects.create(
        team=team, run=run, seq=asked.seq, profile="p", request={"messages": [{"role": "user", "content": MARK}]}, failure=MARK, asked_by=owner,
        answered_at=timezone.now(),
    )  # fmt: skip
    invitation, _ = teams.invite(request, team, Membership.MEMBER, days=7, most_uses=1, note=f"note {MARK}")
    token, _ = tokens.issue(owner, team, f"token {MARK}", ["read"])
    tried = TryOut.objects.create(
        team=team, sha="a" * 64, source=SOURCE, device_kind="cpu", precision="fp32-strict", mode="train", state="finished", asked_by=owner,
        error=MARK, finished_at=timezone.now() + timedelta(seconds=1),
    )  # fmt: skip
    # Programs written by people belong to an entry of their team; those written by workflows belong to everyone.
    entry = Entry.objects.create(key=f"verify {team.pk}", workflow="verify", team=team)
    result = Result.objects.get(run=run)
    result.entry = entry
    result.save()
    ranked = RankedSuite.objects.create(team=team, name=f"ranked {MARK}")
    measured = MeasuredDiff.objects.create(
        team=team, run=run, sides=f"task...{best.number}", old_sha="a" * 64, new_sha="b" * 64, task_sha="c" * 64, queue="verify.cpu", tier="quick",
        precision="fp32-strict", mode="train", created_by=owner,
    )  # fmt: skip
    hook = Hook.objects.create(team=team, name=f"hook {MARK}", url="https://example.com/hook", created_by=owner)
    Device.objects.create(worker="w", kind="cpu", device="cpu", name="Example CPU", model="cpu", queue="verify.cpu")
    message = Event.objects.filter(run=run, kind="message.completed").first()
    trainings.write(settings.LEARNING_DIR / f"training-{MARK}", team=team.slug, model=MARK)
    theirs = Run.objects.create(team=other, task=Task.objects.create(team=other, sha="d" * 64, name="t", source=SOURCE), title="theirs")
    world = World(team, people, strangers, other, run, theirs)
    world.by_parameter = {
        "run_id": run.pk,
        "number": best.number,
        "tab": "report",
        "sha": best.sha,
        "seq": message.seq,
        "task_id": run.task_id,
        "try_out_id": tried.pk,
        "arena_id": arena.pk,
        "document_id": document.pk,
        "letter_id": letter.pk,
        "replay_id": replay.pk,
        "team_id": team.pk,
        "hook_id": hook.pk,
        "invitation_id": invitation.pk,
        "member_id": Membership.objects.get(team=team, user=people[Membership.MEMBER]).pk,
        "token_id": token.pk,
        "thread_id": thread.pk,
        "comment_id": comment.pk,
        "notification_id": notice.pk,
        "share_id": share.pk,
        "verification_id": best.verification_id,
        "sides": f"task...{best.number}",
        "measured_id": measured.pk,
        "entry_id": entry.pk,
        "result_id": result.pk,
        "suite_id": ranked.pk,
        "training": f"training-{MARK}",
        "step": 1,
        "rollout": 1,
    }
    timeline = best.timeline.sha
    world.by_name = {
        ("runs:call", "seq"): asked.seq,
        ("llm:replay", "seq"): asked.seq,
        ("runs:timeline", "sha"): timeline,
        ("runs:timeline_trace", "sha"): timeline,
    }
    return world


def ids(world: World) -> list[str]:
    """Returns the ids of A's objects, to be sent wherever a page takes them as input."""
    return [str(value) for value in world.by_parameter.values() if isinstance(value, uuid.UUID)]
