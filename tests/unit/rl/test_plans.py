"""The policy over plans: what it may not do, what it may not see, that it learns, and that an interrupted training run continues seamlessly."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from agents.arena.landscape import Axis, Landscape, Table, load, save
from agents.arena.played_verifier import Verified
from agents.arena.synthetic import synthetic
from agents.moving import scorer
from agents.moving.features import MOVE, STATE, look
from agents.moving.known import Facts, Search, Tried
from agents.moving.scorer import NotWeights
from agents.rl.cli import main
from agents.rl.plans import arms, evaluating, folds
from agents.rl.plans.episodes import Course, Episode, courses, kind_of
from agents.rl.plans.network import Batch, Network
from agents.rl.plans.training import CannotTrain, Config, Trainer, gains_of, promises_of, worth_after
from agents.rl.records import METRICS, read_lines

AXES = (
    Axis("cuda-graph", "", (0, 1), 0, "cuda-graph"),
    Axis("row-cache", "g1", (0, 1), 1, "row-cache"),
    Axis("vector", "g1", (1, 4), 1, "vectorise", numeric=True),
    Axis("block", "g1", (128, 256, 512), 1, "block-size", numeric=True),
    Axis("unroll", "g1", (2, 4, 8, 0), 3, "unroll", numeric=True),
)
TINY = Config(steps=4, imitation=2, tasks=2, group=3, passes=2)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def planted(name: str, wrong: tuple[int, ...] = ()) -> Course:
    """Returns a course in which unrolling by 2 and vectors of 1 save a lot of time and all other changes cost time. Points that differ only in
    row-cache print the same program."""
    count = 2 * 2 * 2 * 3 * 4
    shape = [len(axis.values) for axis in AXES]
    us, program = [], []
    for index in range(count):
        graph, cache, vector, block, unroll = np.unravel_index(index, shape)
        us.append(100.0 * 1.1**graph * (1.0 if vector else 0.8) * 1.15 ** abs(int(block) - 1) * (0.6 if unroll == 0 else 1.0))
        program.append(int(np.ravel_multi_index((graph, 0, vector, block, unroll), shape)))
    return Course(
        Landscape(
            name, "planted", AXES, 150.0, 40.0, program, [2 if index in wrong else 0 for index in range(count)],
            [None if index in wrong else value for index, value in enumerate(us)], [0.001] * count, ["latency"] * count, ("g1",),
            [[0.9]] * count, [1.0] * count,
        )
    )  # fmt: skip


def played(course: Course, moves: int, seed: int = 1) -> Episode:
    """Returns a search after some random moves."""
    draw, episode = random.Random(seed), Episode(course, str(seed), 24)
    for _ in range(moves):
        if targets := episode.see().targets:
            episode.take(draw.choice(targets))
    return episode


def test_no_move_is_illegal_or_made_twice_or_prints_what_was_measured():
    course = planted("a")
    episode = played(course, 0)
    programs = [course.landscape.program[course.landscape.index(course.facts.default)]]
    while targets := episode.see().targets:
        assert len(set(targets)) == len(targets)
        for target in targets:
            assert all(0 <= at < len(axis.values) for at, axis in zip(target, AXES, strict=True))
            assert min(sum(a != b for a, b in zip(target, base.point, strict=True)) for base in episode.search.bases(None)) == 1
            assert course.landscape.program[course.landscape.index(target)] not in programs
        episode.take(targets[0])
        programs.append(course.landscape.program[course.landscape.index(targets[0])])
    assert len(programs) == len(set(programs)) == course.landscape.distinct == 48


@pytest.mark.parametrize("moves", [0, 1, 5, 15])
def test_features_know_nothing_of_programs_that_were_not_measured(moves):
    course = planted("a")
    episode = played(course, moves)
    measured = {course.landscape.program[course.landscape.index(one.point)] for one in episode.search.tried}
    count = len(course.landscape)
    hidden = [course.landscape.program[index] not in measured for index in range(count)]
    other = replace(
        course.landscape,
        us=[None if h and i % 3 == 0 else 7.0 * i + 1 if h else us for i, (us, h) in enumerate(zip(course.landscape.us, hidden, strict=True))],
        status=[1 if h and i % 3 == 0 else 0 for i, h in enumerate(hidden)],
        bottleneck=["compute" if h else "latency" for h in hidden],
        shares=[[0.1] if h else [0.9] for h in hidden],
        launches=[9.0 if h else 1.0 for h in hidden],
        spread=[0.5 if h else 0.001 for h in hidden],
    )
    again = Episode(Course(other), "1", 24)
    for one in episode.search.tried[1:]:
        again.take(one.point)
    before, after = episode.see(), again.see()
    assert sum(hidden) > 20
    assert before.targets == after.targets
    np.testing.assert_array_equal(before.rows, after.rows)


def test_features_are_finite_and_of_the_stated_size():
    wrong = tuple(range(0, 96, 2))
    for moves in (0, 3, 12):
        seen = played(planted("a", wrong), moves, seed=moves).see()
        assert seen.rows.shape == (len(seen.targets), MOVE + STATE)
        assert np.isfinite(seen.rows).all() and np.abs(seen.rows).max() < 20


def test_features_are_those_of_a_task_that_is_twice_as_long():
    """Only ratios of times matter, so a policy cannot distinguish the two tasks."""
    short = planted("a").landscape
    long = replace(short, us=[None if us is None else 2 * us for us in short.us], eager_us=300.0, floor_us=80.0)
    np.testing.assert_allclose(played(Course(short), 6).see().rows, played(Course(long), 6).see().rows, atol=1e-9)


def test_there_is_no_move_before_the_first_program_and_none_without_choices():
    with pytest.raises(ValueError, match="first program"):
        look(Search(planted("a").facts, 8))
    search = Search(Facts((), (), 100.0, 0.0), 8)
    search.add(Tried((), 90.0))
    assert look(search).targets == []


def test_a_start_elsewhere_stands_for_the_compilers_choice():
    episode = Episode(planted("a"), "1", 8, (1, 0, 0, 2, 0))
    assert episode.search.facts.default == episode.search.tried[0].point == (1, 0, 0, 2, 0)


def test_a_varied_task_takes_alike_where_it_prints_alike():
    course = planted("a", wrong=(3,))
    varied = course.varied(random.Random(1), 0.3)
    by_program: dict[int, set[float]] = {}
    for number, us in zip(varied.landscape.program, varied.landscape.us, strict=True):
        by_program.setdefault(number, set()).add(us or 0.0)
    assert all(len(times - {0.0}) <= 1 for times in by_program.values())
    assert varied.landscape.us[3] is None and varied.best != course.best
    assert course.varied(random.Random(1), 0.3).landscape.us == varied.landscape.us


def test_labels_say_what_the_table_says_and_see_one_change_further():
    course = planted("a")
    seen = played(course, 0).see()
    gains = dict(zip(seen.targets, gains_of(course, seen), strict=True))
    graph, vector, unroll = (1, 1, 1, 1, 3), (0, 1, 0, 1, 3), (0, 1, 1, 1, 0)
    assert gains[graph] < 0 < gains[vector] < gains[unroll]
    promises = dict(zip(seen.targets, promises_of(course, seen, 0.6), strict=True))
    assert promises[graph] > 0 and all(promises[target] >= gain for target, gain in gains.items())


def test_worth_is_what_comes_after_a_move():
    episode = played(planted("a"), 0)
    episode.shares = [0.5, 0.5, 1.0]
    assert worth_after(episode, 0) == worth_after(episode, 1) > 0
    assert worth_after(episode, 2) == 0


def test_chances_are_those_of_each_states_moves():
    states = [played(planted("a"), moves).see() for moves in (0, 4, 9)]
    batch = Batch(states)
    chances = batch.log_chances(Network(1)(batch.rows)[0])
    np.testing.assert_allclose(batch.sums(chances.exp()).detach().numpy(), 1.0, rtol=1e-5)


@pytest.mark.slow
def test_it_learns_a_planted_landscape_and_takes_that_to_another_task(tmp_path):
    config = Config(steps=24, imitation=16, tasks=3, group=4, passes=4)
    metrics = Trainer([planted("a"), planted("b"), planted("c", wrong=(5, 50))], config, tmp_path).train()
    assert [line["step"] for line in metrics] == list(range(1, 25))
    policy = scorer.Scorer(tuple(Trainer([planted("a"), planted("b"), planted("c", wrong=(5, 50))], config, tmp_path).network.layers()), {})
    curves = [arms.searched(planted("held out"), arms.by_policy(policy), seed, 8) for seed in range(5)]
    assert arms.share_at(curves, 4) > 0.99  # two changes out of thirteen, found within the first three programs
    blind = [arms.searched(planted("held out"), lambda search, seen: len(seen.targets) // 2, seed, 8) for seed in range(5)]
    assert arms.share_at(blind, 4) < 0.9


def test_a_training_that_was_interrupted_makes_the_same_curve(tmp_path):
    tasks = [planted("a"), planted("b")]
    whole = Trainer(tasks, TINY, tmp_path / "whole")
    whole.train()
    for until in (1, 3, 4):  # during imitation, and after it
        broken = Trainer(tasks, TINY, tmp_path / "broken")
        broken.train(until)
    figures = [[{k: v for k, v in line.items() if k != "seconds"} for line in read_lines(tmp_path / name / METRICS)] for name in ("whole", "broken")]
    assert figures[0] == figures[1] and len(figures[0]) == 4
    for one, other in zip(whole.network.parameters(), broken.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    Trainer([planted("a"), planted("b")], TINY, tmp_path).train(1)
    with pytest.raises(CannotTrain, match="other settings"):
        Trainer([planted("a"), planted("b")], replace(TINY, seed=5), tmp_path)
    with pytest.raises(CannotTrain, match="no task"):
        Trainer([], TINY, tmp_path / "none")
    with pytest.raises(CannotTrain):
        Config(steps=2, imitation=3)


def test_weights_survive_their_file_and_networks_side_by_side_give_the_mean(tmp_path):
    seen = played(planted("a"), 3).see()
    networks = [Network(seed, hidden=8) for seed in (1, 2, 3)]
    for number, network in enumerate(networks):
        torch.nn.init.normal_(network.heads.weight)
        scorer.write(tmp_path / f"{number}.json", network.layers(), {"seed": number})
    read = [scorer.read(tmp_path / f"{number}.json") for number in range(3)]
    alone = [one.score(seen)[0] for one in read]
    with torch.no_grad():
        np.testing.assert_allclose(alone[0], networks[0](torch.from_numpy(seen.rows).float())[0].numpy(), atol=0.02)
    np.testing.assert_allclose(folds.together(read).score(seen)[0], np.mean(alone, axis=0), atol=1e-9)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: {**content, "move": 1},
        lambda content: {**content, "layers": content["layers"][1:]},
        lambda content: {**content, "layers": []},
        lambda content: {**content, "layers": [{**content["layers"][0], "bias": [float("inf")] * 8}, *content["layers"][1:]]},
        lambda content: {"format": 1},
        lambda content: [],
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, damage):
    path = tmp_path / "w.json"
    scorer.write(path, Network(1, hidden=8).layers(), {})
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(NotWeights):
        scorer.read(path)


def test_every_task_is_held_out_once_and_never_trained_on_then():
    made = [
        replace(landscape, name=name) for landscape, name in zip(synthetic(4).landscapes, ["softmax", "rms_norm", "layer_norm", "x"], strict=True)
    ]
    found = folds.folds([Course(landscape) for landscape in made], "kind")
    assert {fold.name: [c.landscape.name for c in fold.held_out] for fold in found} == {
        "softmax": ["softmax"],
        "norm": ["rms_norm", "layer_norm"],
        "x": ["x"],
    }
    assert all(not set(fold.courses) & set(fold.held_out) and len(fold.courses) + len(fold.held_out) == 4 for fold in found)
    assert [fold.name for fold in folds.folds(found[0].courses, "none")] == ["all"]
    with pytest.raises(CannotTrain):
        folds.folds(found[0].held_out, "kind")


def test_kinds_by_names():
    named = {"cumsum_rows": "scan", "log_softmax_scaled": "softmax", "row_variance": "sums", "lstm_cell_loop": "network", "gelu_chain": "pointwise"}
    assert {name: kind_of(name) for name in [*named, "rope"]} == {**named, "rope": "rope"}


def test_draws_of_the_policy_come_from_the_seed():
    course, policy = planted("a"), scorer.Scorer(tuple(Network(1, hidden=8).layers()), {})

    def way(seed: int, temperature: float) -> list[float]:
        return arms.searched(course, arms.by_policy(policy, seed, temperature), 1, 8)

    assert way(1, 1.0) == way(1, 1.0) and len({tuple(way(seed, 1.0)) for seed in range(5)}) > 1
    assert len({tuple(way(seed, 0.0)) for seed in range(5)}) == 1


def test_curves_count_repeats_where_they_are_asked_to():
    course = planted("a")
    default = course.landscape.index(course.facts.default)
    twin, better = default - course.landscape.strides[1], course.landscape.best
    log = [Verified(point, "passed", us, "quick", 0, 0, 0.0, 0) for point, us in ((default, 100.0), (twin, 99.0), (better, 48.0))]
    best = course.best / course.time(course.facts.default)
    assert arms.curve(course, log, 3) == pytest.approx([best, best, 1.0])
    assert arms.curve(course, arms.distinct(course, log), 3) == pytest.approx([best, 1.0, 1.0])
    for name in ("random", "descend"):
        assert all(len(arms.workflow(course, name, 1, 6, free)) == 6 for free in (True, False))


def test_the_ledger_tries_first_what_gained_elsewhere():
    of_others = arms.ledger_of([planted("b")], 0)
    assert of_others["unroll"].trust > of_others["cuda-graph"].trust
    episode = played(planted("a"), 0)
    seen = episode.see()
    assert arms.strategy_of(episode.search, seen, arms.by_ledger(of_others, 1)(episode.search, seen)) in ("unroll", "vectorise")


def test_an_interval_holds_the_mean_and_pairs_tasks():
    draw = np.random.default_rng(1)
    shares = draw.uniform(0.8, 1.0, size=(12, 1)) + draw.normal(0, 0.005, size=(12, 6))
    found = evaluating.figure(shares)
    assert found["low"] < found["mean"] < found["high"]
    less = evaluating.figure(shares + 0.01, shares)
    assert less["mean"] == pytest.approx(0.01) and less["high"] - less["low"] < found["high"] - found["low"]


@pytest.mark.slow
def test_the_commands_train_evaluate_and_write_weights(tmp_path, capsys):
    table = Table("synthetic", {"device_name": "none"}, [planted("softmax").landscape, planted("rms_norm").landscape])
    file, out = str(save(table, tmp_path / "table.json")), str(tmp_path / "out")
    given = ["--landscapes", file, "--out", out, "--quiet"]
    small = ["--networks", "2", "--steps", "2", "--imitation", "1"]
    assert load(tmp_path / "table.json").named("softmax").axes == AXES
    assert main(["plans", "evaluate", *given]) == 2 and "no trained policy" in capsys.readouterr().err
    assert main(["plans", "train", *given, *small]) == main(["plans", "train", *given, *small, "--hold-out", "none"]) == 0
    results = tmp_path / "rl-plans.json"
    capsys.readouterr()
    assert main(["plans", "evaluate", *given, "--seeds", "1-2", "--results", str(results)]) == 0
    found = json.loads(results.read_text())
    assert found["about"]["table"] == "synthetic" and found["about"]["held_out"] == "kind"
    assert sorted(found["tasks"]) == ["rms_norm", "softmax"]
    assert capsys.readouterr().out.count("\n| ") >= len(found["after"]["8"]["arms"]) == 8
    weights = tmp_path / "weights.json"
    assert main(["plans", "weights", *given, "--to", str(weights), "--evaluated", str(results)]) == 0
    about = scorer.read(weights).about
    assert about["seed"] == [0, 1] and "descend" in about["held_out"]["after 8"]
    assert main(["plans", "train", *given, "--folds", "x"]) == 2 and "there is no fold 'x'" in capsys.readouterr().err


def test_courses_leave_out_tasks_without_a_program():
    none = planted("none", wrong=tuple(range(96)))
    assert courses(Table("synthetic", {}, [none.landscape, planted("a").landscape]))[0].landscape.name == "a"
