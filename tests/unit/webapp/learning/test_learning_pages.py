"""Pages about training runs: who may see what, curves that grow while a run writes, rollouts as traces, and damaged files."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from agents.rl.prompts import prompt_of
from agents.rl.scratch import Size, TinyPolicy
from agents.rl.training import Config, Trainer
from tests.unit.webapp.cast import PROGRAM, SOURCE
from tests.unit.webapp.learning.trainings import SITTING, lines, metrics, rollout, write
from webapp.accounts.models import Membership, User
from webapp.learning.files import Problem
from webapp.learning.rollouts import rollouts_of

pytestmark = pytest.mark.django_db
LIST = reverse("learning:list")


@pytest.fixture
def place(tmp_path, settings):
    settings.LEARNING_DIR = tmp_path / "learning"
    return settings.LEARNING_DIR


def page(people, who: str, name: str, *arguments: object, status: int = 200, **query: object) -> str:
    answer = people.client(who).get(reverse(f"learning:{name}", args=arguments), query)
    assert answer.status_code == status
    return answer.content.decode()


def test_an_empty_place_says_how_to_start(people, place):
    said = page(people, "alice", "list")
    assert "No training yet" in said and f"--team {people.alice.personal_team.slug}" in said and "agents.rl serve" in said
    place.mkdir()
    assert "No training yet" in page(people, "alice", "list")


def test_a_list_says_how_each_stands(people, place):
    write(place / "arms" / "verdict" / "seed-1")
    write(place / "began", sittings=[SITTING | {"ended": None}], config={"steps": 9})
    write(place / "lost", sittings=[SITTING | {"why": "the reward server does not answer"}])
    said = page(people, "alice", "list")
    for words in ("arms/verdict/seed-1", "finished", "began", "running", "3 of 9", "lost", "failed", "1.50×", "25 %"):
        assert words in said
    assert "the reward server does not answer" in page(people, "alice", "training", "lost")


def test_a_training_that_names_a_team_is_its_members_alone(people, place):
    write(place / "ours", team=people.alice.personal_team.slug)
    for who, found in (("alice", 200), ("bob", 200), ("charlie", 404)):
        assert ("ours" in page(people, who, "list")) == (found == 200)
        page(people, who, "training", "ours", status=found)
        page(people, who, "figures", "ours", status=found)
        page(people, who, "rollout", "ours", 1, 1, status=found)
    assert people.client("alice").get(LIST, headers={"HX-Request": "true"}).status_code == 200


def test_rollouts_of_no_team_are_seen_where_there_is_one_account(people, place):
    write(place / "nobodys")
    said = page(people, "alice", "training", "nobodys")
    assert "--team" in said and "1. softmax" not in said
    page(people, "alice", "rollout", "nobodys", 1, 1, status=404)
    User.objects.exclude(pk=people.alice.pk).delete()
    assert "1. softmax" in page(people, "alice", "training", "nobodys")
    page(people, "alice", "rollout", "nobodys", 1, 1)


def test_who_has_left_every_team_still_sees_the_page(people, place):
    client = people.client("charlie")
    Membership.objects.filter(user=people.charlie).delete()
    assert "--team TEAM" in client.get(LIST).content.decode()
    write(place / "nobodys")
    assert "--team" in client.get(reverse("learning:training", args=["nobodys"])).content.decode()


def test_figures_grow_and_are_sent_only_when_they_have(people, place):
    folder = write(place / "one")
    address, client = reverse("learning:figures", args=["one"]), people.client("alice")
    first = client.get(address)
    charts = {chart["key"]: chart for chart in first.json()["charts"]}
    assert first.json()["steps"] == [1, 2, 3] and charts["reward"]["lines"] == [{"name": "reward", "values": [0.1, 0.2, 0.3]}]
    assert [line["name"] for line in charts["verdicts"]["lines"]] == ["passed", "wrong result"] and charts["verdicts"]["stacked"]
    assert [line["name"] for line in charts["parts"]["lines"]] == ["base", "rubric factor"]
    assert client.get(address, headers={"If-None-Match": first["ETag"]}).status_code == 304
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(metrics(4)) + "\n" + '{"step": 5, "rew')
    assert client.get(address, headers={"If-None-Match": first["ETag"]}).json()["steps"] == [1, 2, 3, 4]
    assert "Rollouts of step 4" in page(people, "alice", "training", "one")


def test_many_steps_are_thinned_and_the_last_is_kept(people, place):
    folder = write(place / "long")
    lines(folder / "metrics.jsonl", [{"step": step, "reward": step} for step in range(1, 5002)])
    steps = people.client("alice").get(reverse("learning:figures", args=["long"])).json()["steps"]
    assert len(steps) <= 2001 and steps[0] == 1 and steps[-1] == 5001


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"step": 4, "reward": NaN}', "line 4: this isn&#x27;t valid JSON"),
        ('{"step": 4, "reward": 1e999}', "line 4: this isn&#x27;t valid JSON"),
        ('{"step": 4, "reward": "0.5"}', "line 4: reward isn&#x27;t a number"),
        ('{"step": 4, "parts": {"base": true}}', "line 4: parts.base isn&#x27;t a number"),
        ('{"step": 4, "reward": ' + "9" * 400 + "}", "line 4: reward isn&#x27;t a number"),
        ('{"step": 2, "reward": 1}', "step 2 follows step 3"),
        ('{"reward": 1}', "doesn&#x27;t say which step"),
        ("[1]", "isn&#x27;t a JSON object"),
        ("[" * 5000, "isn&#x27;t valid JSON"),
    ],
)
def test_a_line_that_cannot_be_used_names_its_place_and_the_rest_is_shown(people, place, line, said):
    folder = write(place / "one")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line + "\n" + json.dumps(metrics(5)) + "\n")
    shown = page(people, "alice", "training", "one")
    assert said in shown and "Delete the line" in shown
    assert people.client("alice").get(reverse("learning:figures", args=["one"])).json()["steps"] == [1, 2, 3, 5]
    assert "! file" in page(people, "alice", "list")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b'{"version": 2}', b'{"version": 1, "team": 5}', b'{"version": 1, "sittings": {}}']
)
def test_a_broken_run_json_is_said_and_opens_nothing(people, place, content):
    folder = write(place / "one", team=people.alice.personal_team.slug)
    (folder / "run.json").write_bytes(content)
    shown = page(people, "charlie", "training", "one")
    assert "run.json:" in shown and "1. softmax" not in shown
    page(people, "alice", "rollout", "one", 1, 1, status=404)


def test_odd_values_of_run_json_are_no_failure(people, place):
    write(place / "odd", kind=["x"], model={"a": 1}, device="\ud800", config={"steps": "many"}, sittings=[5, {"began": 1, "why": 7, "step": 1e300}])
    shown = page(people, "alice", "training", "odd")
    assert "kind unknown" in shown


def test_a_rollout_opens_with_diff_and_verdict(people, place):
    slug = people.alice.personal_team.slug
    faster = PROGRAM.replace("torch.softmax(x, dim=1)", "torch.softmax(x, 1)")
    drawn = [
        rollout(1, task=SOURCE, before=""),
        rollout(2, episode="a", task=SOURCE, before=""),
        rollout(2, episode="b", reward=None, advantage=None, score={"no_sample": "timeout", "why": "300 s", "episode": "b"}),
        rollout(2, turn=1, episode="a", program=faster, feedback="<b>2.1x</b>"),
        rollout(
            2, group=1, episode="c", task=SOURCE, before=PROGRAM, program=faster, score={"status": "passed", "gate": "major_hacking", "episode": "c"}
        ),
    ]
    write(place / "one", team=slug, rollouts=drawn, steps=2)
    listed = page(people, "alice", "training", "one")
    assert "1. softmax" in listed and "2 turns" in listed and "no sample" in listed and "hack" in listed and "4. softmax" not in listed
    last = page(people, "alice", "rollout", "one", 2, 1)
    assert "Program against turn 1" in last and "&lt;b&gt;2.1x" in last and "coder-7b" in last and "1.600" in last
    first = page(people, "alice", "rollout", "one", 2, 1, turn=1)
    assert "Program against the task" in first and "ModelNew" in first
    assert "none: timeout: 300 s" in page(people, "alice", "rollout", "one", 2, 2)
    assert "Program against the program before" in page(people, "alice", "rollout", "one", 2, 3)
    for wrong in ((2, 0), (2, 4), (7, 1), (10**30, 1)):
        page(people, "alice", "rollout", "one", *wrong, status=404)
    assert "Rollouts of step 1<" in page(people, "alice", "training", "one", step=1)


def test_every_step_is_found_in_a_large_file_and_a_broken_line_is_said(people, place):
    drawn = [rollout(step, episode=str(at), reply="x" * (step * 37 % 900)) for step in range(1, 120) for at in range(step % 4)]
    folder = write(place / "one", team=people.alice.personal_team.slug, rollouts=drawn, steps=119)
    path = folder / "rollouts.jsonl"
    assert [len(rollouts_of(path, step)) for step in range(122)] == [step % 4 if 0 < step < 120 else 0 for step in range(122)]
    with path.open("a") as file:
        file.write('{"step": 120, "torn')
    assert len(rollouts_of(path, 119)) == 3 and rollouts_of(path, 120) == []
    whole = path.read_text().splitlines()
    at = next(number for number, line in enumerate(whole) if json.loads(line)["step"] == 50)
    path.write_text("\n".join([*whole[: at + 1], "{broken", *whole[at + 1 :]]) + "\n")
    with pytest.raises(Problem, match="at byte"):
        rollouts_of(path, 50)
    assert len(rollouts_of(path, 51)) == 3 and len(rollouts_of(path, 3)) == 3
    assert "rollouts.jsonl, at byte" in page(people, "alice", "training", "one", step=50)
    assert "rollouts.jsonl, at byte" in page(people, "alice", "rollout", "one", 50, 1)


def test_supervised_trainings_have_a_loss_and_no_rollouts(people, place):
    folder = write(place / "sft", kind="supervised")
    lines(folder / "metrics.jsonl", [{"step": 1, "loss": 2.5, "norm": 1.0, "tokens": 90, "seconds": 0.5}])
    shown = page(people, "alice", "training", "sft")
    assert "Loss" in shown and "Rollouts" not in shown
    (folder / "run.json").unlink()  # from a version that did not write any
    assert "Loss" in page(people, "alice", "training", "sft")


@pytest.mark.parametrize("name", ["..", "../one", "one/..", "/etc", "one/../one", "nothing", "%2e%2e", "one\0"])
def test_nothing_beside_the_place_is_opened(people, place, name):
    write(place / "one")
    write(place.parent / "beside")
    (place / "linked").symlink_to(place.parent / "beside")
    assert people.client("alice").get(f"/learning/{name}/").status_code in (400, 404)
    assert "linked" not in page(people, "alice", "list")


def test_the_page_has_its_key_and_is_in_the_bar_once_there_is_a_training(people, place):
    bar = f'<a href="{LIST}"'
    home = people.client("alice").get("/").content.decode()
    assert 'data-key="g h"' in home and bar not in home.partition('<nav id="nav"')[2].partition("</nav>")[0]
    write(place / "one")
    assert bar in people.client("alice").get("/").content.decode().partition('<nav id="nav"')[2].partition("</nav>")[0]


class Kernels:
    """A task with two turns: the first answer is wrong, the second right."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.begun = 0

    def reset(self, problem=None, seed=None):
        self.begun += 1
        return {"episode_id": f"e{self.begun}", "problem": "p", "prompt": prompt_of(SOURCE)}

    def step(self, episode_id, *, program=None, reply=None):
        self.asked.append(episode_id)
        again = self.asked.count(episode_id) > 1
        score = {"status": "passed" if again else "wrong_result", "low": 1.25, "own_share": 0.5, "base": 1.0, "rubric": {"speed": 3}}
        seen = {
            "episode_id": episode_id,
            "problem": "p",
            "prompt": "" if again else prompt_of(SOURCE, "P", "off"),
            "components": score,
            "feedback": "off",
        }
        return {"observation": seen, "reward": len(reply) / 9 if again else 0.0, "done": again}


@pytest.mark.slow
def test_what_the_trainer_writes_is_what_the_page_reads(people, place):
    config = Config.of(steps=2, prompts=1, group=2, most_tokens=4, turns=2, rank=0, at_once=1)
    about = {"model": "tiny", "device": "cpu", "team": people.alice.personal_team.slug}
    Trainer(TinyPolicy(Size(width=16, layers=1, heads=2)), config, place / "real", about=about).reinforce(Kernels())
    shown = page(people, "alice", "training", "real")
    assert "finished" in shown and "2. p" in shown and "2 turns" in shown and "notice bad" not in shown
    charts = people.client("alice").get(reverse("learning:figures", args=["real"])).json()
    assert charts["steps"] == [1, 2] and all(chart["lines"] for chart in charts["charts"] if chart["key"] not in ("parts", "descent"))
    rollout = page(people, "alice", "rollout", "real", 1, 1, turn=1)
    assert "Program against the task" in rollout and "wrong result" in rollout
