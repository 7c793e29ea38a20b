"""Runs beside each other: what the figures say, what is marked the best, how steps and kernels line up, who may see it."""

from urllib.parse import urlencode

import pytest
from django.urls import reverse

from tests.unit.webapp.people import People
from tests.unit.webapp.ranked import make_ranked
from verifier.report import Kernel
from webapp.compare.figures import clear_best, least
from webapp.compare.steps import Step, home, kind_of


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
        return Kernel(name=name, calls=1, ms=0.1, share=0.5, own=own, via=via)

    steps = [step("linear", "ReLU"), step("softmax", "div"), step("convolution")]
    assert home(kernel("softmax_div_kernel(float const*, float*)"), steps) is steps[1]
    assert home(kernel("linear_relu_kernel"), steps) is steps[0]
    assert home(kernel("sm90_xmma_gemm_f32", own=False), steps) is steps[0]
    assert home(kernel("implicit_convolve_sgemm", own=False, via="aten::cudnn_convolution"), steps) is steps[2]
    assert home(kernel("mystery"), steps) is None and kind_of("mystery") == "other kernels"
