"""Runs side by side: the figures, which best values are marked, how steps and kernels are aligned, and who may see the page."""

from urllib.parse import urlencode

import pytest
from django.urls import reverse

from tests.browser import sample_run
from tests.unit.webapp.people import People
from tests.unit.webapp.ranked import make_ranked
from verifier.jobs import Profile, Roofline
from verifier.report import ObservedKernel
from webapp.compare.figures import clear_best, least
from webapp.compare.steps import Step, home, kind_of
from webapp.runs import artefacts
from webapp.runs.models import Artefact
from webapp.runs.pages.views_candidate import compared_with


@pytest.fixture
def people(db) -> People:
    return People.make()


def page(people: People, *keys, who: str = "alice", **more):
    query = [("with", str(key)) for key in keys] + list(more.items())
    return people.client(who).get(f"{reverse('compare:compare')}?{urlencode(query)}")


def test_two_runs_of_one_task(people):
    task = "softmax"
    slow, fast = (make_ranked(people.alice, task, ratio=ratio, device="cuda") for ratio in (1.5, 3.0))
    response = page(people, slow.pk, fast.pk)
    assert response.status_code == 200
    row = next(row for row in response.context["figures"] if row.title == "Against eager")
    assert [round(cell["ratio"], 1) for cell in row.cells] == [1.5, 3.0] and row.best == (1,)
    assert [one["letter"] for one in response.context["pictures"]["intervals"]] == ["A", "B"]
    assert len(response.context["pairs"]) == 1 and "different tasks" not in response.text


def test_attempts_of_each_run_once_with_intervals_and_verdicts(people):
    run, other = sample_run.create_run(people.alice), make_ranked(people.alice, "softmax", ratio=2.0)
    sample_run.play(run)
    drawn = page(people, run.pk, f"{run.pk}:2", other.pk).context["pictures"]["attempts"]
    assert [one["letter"] for one in drawn] == ["A"]  # the other run tried only one program
    points = drawn[0]["points"]
    assert [point["number"] for point in points] == [1, 2, 3, 4] and points[3]["speedup"]["low"] < points[3]["speedup"]["ratio"]
    assert any(point["speedup"] is None and point["status"] == "wrong_result" for point in points)


def test_the_roofline_leads_to_the_comparison(people):
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    run.refresh_from_db()
    best = run.best_candidate
    counted = Profile(
        task="t",
        program="p",
        tool="nsys",
        iterations=5,
        wall_us_per_iteration=9.0,
        kernels=[],
        roofline=Roofline(bytes=10**6, flops=10**6, memory_ms=0.1, compute_ms=0.2),
    )
    stored = artefacts.put(run.team_id, counted.model_dump_json().encode(), "application/json", "profile.json").sha
    run.candidates.update(profile=Artefact.objects.get(team=run.team_id, sha=stored))

    def kernels(number):
        return people.client("alice").get(reverse("runs:candidate", args=[run.pk, number]) + "?tab=kernels").content.decode()

    shown = {one.number: text for one in run.candidates.all() if 'id="roofline"' in (text := kernels(one.number))}
    assert set(shown) >= {best, 1}
    for number, text in shown.items():
        beside = compared_with(run, run.candidates.get(number=number))
        assert (beside["number"], beside["why"]) == ((best, "the best of the run") if number != best else (3, "its parent"))
        there = f"{reverse('compare:compare')}?with={run.pk}:{beside['number']}&amp;with={run.pk}:{number}#roofline"
        assert there in text and people.client("alice").get(there.replace("&amp;", "&")).status_code == 200


def test_different_tasks_are_said_to_be(people):
    one, two = (make_ranked(people.alice, name, ratio=2.0) for name in ("softmax", "conv"))
    assert "different tasks" in page(people, one.pk, two.pk).text


def test_fewer_than_two_are_to_be_chosen(people):
    run = make_ranked(people.alice, "softmax", ratio=2.0)
    assert "Compare" in page(people).text and run.title in page(people).text
    chosen = page(people, run.pk)
    assert "checked" in chosen.text and chosen.templates[0].name == "compare/choose.html"
    assert "is called" in page(people, q="nothing like it").text


@pytest.mark.parametrize("key", ["nonsense", "00000000-0000-0000-0000-000000000000", "{run}:99", "{run}:x"])
def test_what_is_none_is_not_found(people, key):
    run = make_ranked(people.alice, "softmax", ratio=2.0)
    assert page(people, run.pk, key.format(run=run.pk)).status_code == 404


def test_runs_of_others_stay_theirs(people):
    mine = make_ranked(people.charlie, "softmax", ratio=2.0)
    theirs = make_ranked(people.alice, "softmax", ratio=2.0, published=False)
    assert page(people, mine.pk, theirs.pk, who="charlie").status_code == 404
    assert theirs.title not in page(people, who="charlie").text or mine.title == theirs.title


def test_at_most_six(people):
    task = "softmax"
    runs = [make_ranked(people.alice, task, ratio=1 + at) for at in range(7)]
    assert len(page(people, *(run.pk for run in runs)).context["sides"]) == 6


def test_only_what_intervals_tell_apart_is_marked():
    def interval(low, high):
        return {"ratio": (low + high) / 2, "low": low, "high": high}

    assert clear_best([interval(1.0, 1.1), interval(1.05, 1.2)]) == ()
    assert clear_best([interval(1.0, 1.1), interval(1.2, 1.3), None]) == (1,)
    assert clear_best([interval(1.0, 1.1)]) == ()
    assert least([2.0, None, 1.0]) == (2,) and least([1.0, 1.0]) == () and least([1.0]) == ()


def test_kernels_find_their_step():
    def step(*words):
        return Step(words, ", ".join(words), [1], [[]])

    def kernel(name, own=True, via=""):
        return ObservedKernel(name=name, calls=1, ms=0.1, share=0.5, own=own, via=via)

    steps = [step("linear", "ReLU"), step("softmax", "div"), step("convolution")]
    assert home(kernel("softmax_div_kernel(float const*, float*)"), steps) is steps[1]
    assert home(kernel("linear_relu_kernel"), steps) is steps[0]
    assert home(kernel("sm90_xmma_gemm_f32", own=False), steps) is steps[0]
    assert home(kernel("implicit_convolve_sgemm", own=False, via="aten::cudnn_convolution"), steps) is steps[2]
    assert home(kernel("mystery"), steps) is None and kind_of("mystery") == "other kernels"
