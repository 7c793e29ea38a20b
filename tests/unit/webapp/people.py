"""Alice owns a run, Bob is in her team and works on it, and Charlie is not in the team: the tests of the pages check what each of them sees."""

from __future__ import annotations

from dataclasses import dataclass

from django.test import Client

from tests.unit.webapp.cast import make_run, make_user
from verifier.source import sha256
from webapp.accounts.models import Membership, User
from webapp.runs import artefacts, headline
from webapp.runs.models import Candidate, Run, Verification


@dataclass
class People:
    alice: User
    bob: User
    charlie: User

    @classmethod
    def make(cls) -> People:
        alice, bob, charlie = make_user("alice"), make_user("bob"), make_user("charlie")
        Membership.objects.create(team=alice.personal_team, user=bob, role=Membership.MEMBER)
        bob.last_team = alice.personal_team
        bob.save(update_fields=["last_team"])
        return cls(alice, bob, charlie)

    def client(self, name: str) -> Client:
        client = Client()
        client.force_login(getattr(self, name))
        return client


def make_result(user: User, *, ratio: float = 2.0, device: str = "cpu", task: str = "", **fields) -> Run:
    """Creates a finished run whose second candidate passed a full verification with this speedup, ± 5 %."""
    run_fields = {name: fields.pop(name) for name in ("published", "workflow", "precision", "archived_at") if name in fields}
    run = make_run(user, state="finished", outcome="improved", best_candidate=2, device_kind=device, **run_fields)
    run.speedup = {"ratio": ratio, "low": ratio * 0.95, "high": ratio * 1.05}
    run.save()
    add_verification(run, ratio=ratio, **fields)
    headline.keep(run)
    run.save()
    return run


def add_verification(run: Run, *, ratio: float = 2.0, number: int = 2, tier: str = "full", status: str = "passed", **fields) -> Verification:
    program = f"class ModelNew: number = {number}\n"
    artefacts.put(run.team_id, program.encode(), "text/x-python", "program.py")
    artefact = artefacts.find(run.team_id, sha256(program))
    columns = {
        "device_model": "h200" if run.device_kind == "cuda" else "cpu-x86_64-2c",
        "device_name": "NVIDIA H200" if run.device_kind == "cuda" else "Example CPU",
        "program_class": "custom",
        "own_share": 0.9,
        "program_ms": 1.5,
        "speedup": ratio,
        "speedup_low": ratio * 0.95,
        "speedup_high": ratio * 1.05,
        "best_baseline": "compile",
        "best_baseline_speedup": ratio * 0.8,
    }
    key = f"candidate-{number}/{tier}/{run.verifications.count()}"
    verification = Verification.objects.create(
        team=run.team, run=run, key=key, kind="verify", candidate_number=number, request=artefact, queue=f"verify.{run.device_kind}",
        state="finished", status=status, tier=tier, **(columns | fields),
    )  # fmt: skip
    Candidate.objects.get_or_create(
        run=run, number=number, defaults={"title": "candidate", "sha": artefact.sha, "program": artefact, "created_at": verification.queued_at}
    )
    return verification
