"""Submitting a model, and verifying one's own program. Sources are parsed, never run."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from tests.unit.webapp.cast import PROGRAM, SOURCE, make_run
from webapp.arena.models import Arena, ArenaRun
from webapp.fleet.models import Device
from webapp.llm.models import Profile
from webapp.runs.models import Run
from webapp.tasks.examples import examples
from webapp.tasks.models import Task

SUBMIT, VERIFY, CHECK = reverse("tasks:submit"), reverse("tasks:verify"), reverse("tasks:check")


def typed(**changes) -> dict:
    form = {"task": SOURCE, "title": "my softmax", "device": "cpu", "precision": "fp32-strict", "mode": "train"}
    form |= {"candidates": "5", "minutes": "20", "verifier_minutes": "4", "target": ""}
    return form | changes


def test_a_submission_becomes_a_run_and_leads_to_its_page(people):
    answer = people.client("alice").post(SUBMIT, typed(target="2.5"))
    run = Run.objects.get()
    assert answer.headers["Location"] == reverse("runs:run", args=[run.pk])
    assert (run.title, run.workflow, run.team, run.created_by, run.state) == (
        "my softmax",
        "stitch",
        people.alice.personal_team,
        people.alice,
        "queued",
    )
    assert run.task.source == SOURCE
    assert (run.settings["target"], run.settings["budget"]["candidates"], run.settings["budget"]["verifier_seconds"]) == (2.5, 5, 240)


def test_line_ends_of_a_browser_do_not_make_another_task(people):
    client = people.client("alice")
    client.post(SUBMIT, typed(task=SOURCE.replace("\n", "\r\n")))
    assert Run.objects.get().task.source == SOURCE


def test_a_title_is_found_where_none_is_given(people):
    source = SOURCE.replace("import torch\n", '"""Rows that sum to one."""\nimport torch\n', 1)
    people.client("alice").post(SUBMIT, typed(title="", task=source))
    assert Run.objects.get().title == "Rows that sum to one"


@pytest.mark.parametrize(
    ("source", "place", "cause"),
    [
        ("", "source", "there is no task"),
        ("import torch\nclass Model(:\n", "line 2", "syntax error"),
        (SOURCE.replace("class Model", "class Other"), "source", "there is no class `Model`"),
        (SOURCE.replace("import torch\n", "import torch\nimport requests\n", 1), "line 2", "&#x27;requests&#x27; is not allowed"),
        ("x = 1\n" * 100_000, "source", "larger than 512 KiB"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_what_was_typed_is_kept(people, source, place, cause):
    answer = people.client("alice").post(SUBMIT, typed(task=source, title="kept title"))
    page = answer.content.decode()
    assert answer.status_code == 422
    assert place in page and cause in page and 'value="kept title"' in page
    assert not Run.objects.exists()
    if 0 < len(source) < 1000:
        assert source.splitlines()[-1] in page


def test_a_bad_setting_is_refused_with_its_reason(people):
    for change in ({"candidates": "0"}, {"device": "tpu"}, {"minutes": "soon"}, {"target": "0.5"}, {"precision": "fp8"}):
        answer = people.client("alice").post(SUBMIT, typed(**change))
        assert answer.status_code == 422 and "field-error" in answer.content.decode(), change
    assert not Run.objects.exists()


def test_cuda_cannot_be_chosen_until_a_gpu_was_seen(people):
    client = people.client("alice")
    assert "No GPU has connected yet" in client.get(SUBMIT).content.decode()
    assert client.post(SUBMIT, typed(device="cuda")).status_code == 422
    Device.objects.create(worker="w", kind="cuda", device="cuda:0", name="NVIDIA H200", model="h200", queue="verify.cuda")
    assert "NVIDIA H200" in client.get(SUBMIT).content.decode()
    assert client.post(SUBMIT, typed(device="cuda")).status_code == 302


def test_an_uploaded_file_is_taken_without_the_pages_script(people):
    upload = SimpleUploadedFile("model.py", SOURCE.encode())
    people.client("alice").post(SUBMIT, typed(task="", task_file=upload))
    assert Run.objects.get().task.source == SOURCE


def test_uploads_that_are_too_large_or_no_text_are_refused(people):
    for content, cause in ((b"#" * 600_000, "at most 512 KiB"), (b"\xff\xfe\x00", "not UTF-8")):
        answer = people.client("alice").post(SUBMIT, typed(task_file=SimpleUploadedFile("model.py", content)))
        assert answer.status_code == 422 and cause in answer.content.decode()


def test_every_example_opens_and_is_sound(people):
    client = people.client("alice")
    for example in examples():
        page = client.get(SUBMIT, {"example": example.slug})
        assert page.status_code == 200
        answer = client.post(CHECK, {"kind": "task", "source": example.source}).json()
        assert answer["ok"] and answer["problems"] == []
        assert client.get(reverse("tasks:example", args=[example.slug])).content.decode() == example.source
    assert client.get(SUBMIT, {"example": "no_such"}).status_code == 404


def test_tasks_and_runs_of_others_do_not_open(people):
    run = make_run(people.alice)
    for query in ({"task": str(run.task_id)}, {"from": str(run.pk)}):
        assert people.client("bob").get(SUBMIT, query).status_code == 200
        assert people.client("charlie").get(SUBMIT, query).status_code == 404
    assert people.client("alice").get(SUBMIT, {"task": "x"}).status_code == 404


def test_change_and_run_again_opens_with_the_runs_settings(people):
    settings = {"device": "cpu", "precision": "bf16", "mode": "eval", "budget": {"candidates": 3, "seconds": 120, "verifier_seconds": 60}}
    run = make_run(people.alice, settings=settings)
    page = people.client("alice").get(SUBMIT, {"from": str(run.pk)}).content.decode()
    assert '<option value="bf16" selected>' in page and '<option value="eval" selected>' in page and 'name="candidates" value="3"' in page


def test_a_team_that_one_does_not_belong_to_is_refused(people):
    answer = people.client("charlie").post(SUBMIT, typed(team=str(people.alice.personal_team.pk)))
    assert answer.status_code == 422 and not Run.objects.exists()


def test_a_member_can_submit_for_the_team(people):
    people.client("bob").post(SUBMIT, typed(team=str(people.alice.personal_team.pk)))
    assert Run.objects.get().team == people.alice.personal_team


def test_checking_while_typing_names_line_and_column(people):
    answer = people.client("alice").post(CHECK, {"kind": "task", "source": "import torch\nx = = 1\n"}).json()
    assert answer["ok"] is False and answer["problems"][0]["line"] == 2 and answer["problems"][0]["hint"]


def test_checking_never_runs_the_source(people, tmp_path):
    mark = tmp_path / "ran"
    source = SOURCE + f"\nopen({str(mark)!r}, 'w')\n"
    client = people.client("alice")
    client.post(CHECK, {"kind": "task", "source": source})
    client.post(SUBMIT, typed(task=source))
    assert not mark.exists()


def test_ones_own_program_is_verified_without_agents(people):
    answer = people.client("alice").post(VERIFY, typed(program=PROGRAM))
    run = Run.objects.get()
    assert answer.status_code == 302 and run.workflow == "verify" and run.settings["program"]["sha"]


def test_a_program_without_modelnew_is_refused_and_both_sources_are_kept(people):
    answer = people.client("alice").post(VERIFY, typed(program="import torch\nmine = 1\n"))
    page = answer.content.decode()
    assert answer.status_code == 422 and "there is no class `ModelNew`" in page and "mine = 1" in page and "class Model(nn.Module)" in page


def test_workflow_models_language_and_limits_are_chosen(people):
    Profile.objects.create(name="fast", kind="openai", model="m-1")
    client = people.client("alice")
    page = client.get(SUBMIT).content.decode()
    assert "fast (m-1)" in page and "CudaForge" in page and "Let me read the plan first" in page
    chosen = {"workflow": "forge", "llm": "fast", "judge": "built-in", "coder_mode": "frontend+mid-end", "language": "cpp", "review_plan": "on"}
    client.post(SUBMIT, typed(**chosen, calls="40", tokens="200000", dollars="1.5", workers="7"))
    kept = Run.objects.get().settings
    assert (kept["workflow"], kept["planner"], kept["coder"], kept["judge"]) == ("forge", "fast", "fast", "built-in")
    assert (kept["language"], kept["coder_mode"], kept["review_plan"], kept["workers"]) == ("cpp", "frontend+mid-end", True, 7)
    assert (kept["budget"]["calls"], kept["budget"]["tokens"], kept["budget"]["dollars"]) == (40, 200_000, 1.5)
    again = client.get(SUBMIT, {"from": str(Run.objects.get().pk)}).content.decode()
    assert '<option value="fast" selected>' in again and 'name="calls" value="40"' in again and 'name="workers" value="7"' in again


def test_what_cannot_work_together_is_refused_at_its_field(people):
    client = people.client("alice")
    for change, said in (
        ({"llm": "fast"}, "valid choice"),
        ({"language": "cuda"}, "need a GPU"),
        ({"workflow": "magic"}, "valid choice"),
        ({"workers": "17"}, "16"),
    ):
        answer = client.post(SUBMIT, typed(**change))
        assert answer.status_code == 422 and said in answer.content.decode(), change
    assert not Run.objects.exists()


def test_the_page_opens_with_an_example_that_has_something_to_gain(people):
    page = people.client("alice").get(SUBMIT).content.decode()
    assert "Mean and maximum over the valid positions" in page and 'name="workflow" value="auto" checked' in page
    people.client("alice").post(SUBMIT, typed(title="", task=examples_by_slug()["masked_pool"]))
    assert Run.objects.get().title == "masked pool"


def examples_by_slug() -> dict[str, str]:
    return {example.slug: example.source for example in examples()}


@pytest.mark.parametrize(("chosen", "workflow"), [({}, "descend"), ({"llm": "fast"}, "stitch"), ({"judge": "fast"}, "stitch")])
def test_the_automatic_workflow_follows_the_models(people, chosen, workflow):
    Profile.objects.create(name="fast", kind="openai", model="m-1")
    people.client("alice").post(SUBMIT, typed(workflow="auto", **chosen))
    assert Run.objects.get().workflow == workflow


@pytest.mark.parametrize(
    ("amount", "limits"), [("quick", (3, 600, 240)), ("thorough", (32, 10800, 3600)), ("own", (5, 1200, 240)), ("", (5, 1200, 240))]
)
def test_a_budget_is_a_word_or_ones_own_limits(people, amount, limits):
    client = people.client("alice")
    client.post(SUBMIT, typed(amount=amount, calls="7"))
    run = Run.objects.get()
    budget = run.settings["budget"]
    assert (budget["candidates"], budget["seconds"], budget["verifier_seconds"], budget["calls"]) == (*limits, 7)
    again = client.get(SUBMIT, {"from": str(run.pk)}).content.decode()
    assert f'name="amount" value="{amount or "own"}" checked' in again


PLAIN = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, ids):
        return self.linear(x) + ids.unsqueeze(-1)
"""
FILLED = {
    **{"class": "Net", "init.width": "64", "input.x.values": "normal", "input.x.shape": "16, 64", "input.x.dtype": "float32"},
    **{"input.ids.values": "integers", "input.ids.shape": "16", "input.ids.dtype": "int64", "input.ids.low": "0", "input.ids.high": "9"},
}


def test_a_plain_module_is_submitted_with_the_form_beside_it(people):
    people.client("alice").post(SUBMIT, typed(task=PLAIN, title="", **FILLED))
    run = Run.objects.get()
    assert "torch.randn(16, 64)" in run.task.source and "return [64]" in run.task.source and run.title == "Net"


def test_what_a_plain_module_lacks_is_said_once_and_what_was_filled_in_stays(people):
    answer = people.client("alice").post(SUBMIT, typed(task=PLAIN, **FILLED | {"init.width": "", "input.x.shape": "16, many"}))
    page = answer.content.decode()
    assert answer.status_code == 422 and not Run.objects.exists()
    assert page.count("still needed: width") == 1 and "shape of x: &#x27;many&#x27; is not a size" in page.partition('class="module-place"')[0]
    assert (
        'name="input.ids.high" value="9"' in page and "class Net(nn.Module)" in page and "# --- Written from" not in page.partition("</textarea>")[0]
    )


def arena_of(user, gains: dict[str, float], tasks: int = 8, **settings) -> None:
    """Creates an arena whose workflows have finished this many tasks, each with the same lower bound."""
    arena = Arena.objects.create(team=user.personal_team, name="a", created_by=user)
    for number in range(tasks):
        task = Task.objects.create(team=user.personal_team, sha=f"{number}{settings}{len(gains)}{tasks}"[:64], name=f"t{number}", source=SOURCE)
        for workflow, low in gains.items():
            run = Run.objects.create(
                team=user.personal_team, task=task, title="t", workflow=workflow, state="finished", outcome="improved",
                speedup={"ratio": low + 0.1, "low": low, "high": low + 0.2}, settings=settings,
            )  # fmt: skip
            ArenaRun.objects.create(arena=arena, run=run, seed=0)


@pytest.mark.parametrize(
    ("gains", "tasks", "settings", "workflow"),
    [
        ({"stitch": 1.5, "descend": 1.4}, 8, {}, "stitch"),
        ({"stitch": 1.5, "descend": 1.4}, 7, {}, "descend"),  # too few for a conclusion
        ({"stitch": 1.5}, 8, {}, "descend"),  # no other workflow to compare it with
        ({"stitch": 1.5, "descend": 1.4}, 8, {"coder": "fast"}, "descend"),  # with other models
    ],
)
def test_the_automatic_workflow_follows_the_teams_latest_arena(people, gains, tasks, settings, workflow):
    arena_of(people.alice, gains, tasks, **settings)
    people.client("alice").post(SUBMIT, typed(workflow="auto"))
    assert Run.objects.get(title="my softmax").workflow == workflow
