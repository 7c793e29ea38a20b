"""Every address that the URL configuration serves, with the things that its parameters name. `seed` makes those things: a real run from an
H200, a run that waits with its plan, a prompt that waits for a person, an arena, a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from django.urls import URLPattern, URLResolver, get_resolver, reverse

from tests.unit.webapp.people import People, make_result
from webapp.environment import ROOT

TRACE = ROOT / "examples/traces/rms_norm"


@dataclass
class Seeded:
    people: People
    run: object = None
    fill: dict[str, Callable[[], dict]] = field(default_factory=dict)  # URL name -> arguments, before those by parameter
    by_parameter: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Pattern:
    name: str  # with its namespace; "" where the pattern has none
    parameters: tuple[str, ...]
    route: str


def patterns(resolver: URLResolver | None = None, namespace: str = "", route: str = "") -> Iterator[Pattern]:
    for entry in (resolver or get_resolver()).url_patterns:
        if isinstance(entry, URLResolver):
            inner = f"{namespace}{entry.namespace}:" if entry.namespace else namespace
            yield from patterns(entry, inner, f"{route}{entry.pattern}")
        elif isinstance(entry, URLPattern):
            parameters = tuple(entry.pattern.converters) or tuple(entry.pattern.regex.groupindex)
            yield Pattern(f"{namespace}{entry.name}" if entry.name else "", parameters, f"{route}{entry.pattern}")


def address(pattern: Pattern, seeded: Seeded) -> str | None:
    """Where the page is, or None where nothing that was seeded fills its parameters."""
    try:
        arguments = seeded.fill[pattern.name]() if pattern.name in seeded.fill else {p: seeded.by_parameter[p] for p in pattern.parameters}
    except KeyError:
        return None
    if not pattern.name:
        return None if pattern.parameters else f"/{pattern.route}"
    query = arguments.pop("?", "")
    return reverse(pattern.name, kwargs=arguments) + query


def seed(people: People) -> Seeded:
    from tests.unit.webapp.arena.test_arena_pages import make_arena
    from tests.unit.webapp.cast import make_run
    from tests.unit.webapp.llm.test_mailbox_pages import offer
    from webapp.accounts.models import SignInLink
    from webapp.fleet.models import Device
    from webapp.knowledge.documents import save
    from webapp.llm.models import Announcement, Profile
    from webapp.runs.models import Candidate
    from webapp.runs.traces_on_disk import import_trace

    alice, team = people.alice, people.alice.personal_team
    run = import_trace(TRACE, team, alice)
    best = Candidate.objects.get(run=run, number=run.best_candidate)
    for ratio, device in ((2.0, "cpu"), (1.4, "cuda")):
        make_result(alice, ratio=ratio, device=device)
    make_run(alice, state="running")
    Device.objects.create(worker="w1", kind="cpu", device="cpu", name="Example CPU", model="cpu-x86_64-2c", queue="verify.cpu", doctor=DOCTOR)
    Announcement.objects.create(file="llm.toml")
    Profile.objects.create(name="fast", kind="openai", model="m-1", key_variable="EXAMPLE_KEY", details={"max_tokens": 4096})
    letter = offer(make_run(alice, state="running"))
    document = save(
        team=team, user=alice, title="Notes", kind="markdown", text="# Notes\n\nRows of a softmax that is bound by memory are read once.\n"
    )
    seeded = Seeded(people, run)
    seeded.by_parameter = {
        "run_id": run.pk,
        "number": best.number,
        "sha": best.timeline.sha if best.timeline else best.sha,
        "task_id": run.task_id,
        "arena_id": make_arena(alice).pk,
        "letter_id": letter.pk,
        "document_id": document.pk,
        "slug": "softmax",
    }
    seeded.fill = {
        "accounts:sign_in_link": lambda: {"token": SignInLink.issue(alice)},
        "knowledge:strategy": lambda: {"name": "fuse-row-reduction"},
        "llm:try": lambda: {"name": "fast"},
        "runs:artefact": lambda: {"run_id": run.pk, "sha": best.sha},
        "runs:fragment": lambda: {"run_id": run.pk, "number": best.number, "tab": "diff"},
    }
    return seeded


NOTES = "# Notes\n\nRows of a softmax that is bound by memory are read once.\n"
DOCTOR = {"protection": {"sandbox": "bubblewrap", "layers": ["bubblewrap", "seccomp"]}}
