"""The stand-in's answers to the product's own prompts, read by the product's own parsers."""

import asyncio

import pytest

from agents.decisions.script import ScriptReply
from agents.roles.edits import folded, read_program
from agents.roles.replies import DiagnosisReply, IdeaReply, IdeasReply, JudgementReply, PlanReply, UnusableReply, parse
from compiler import Options
from tests.standin import cheats, spoiling
from tests.standin.answers import write
from tests.standin.capturing import Capturer
from tests.standin.faults import CONTENT, EVIDENCE, Fault
from tests.standin.programs import Workshop, choices_of, only, own_in, program
from tests.standin.reading import Unreadable, read
from tests.unit.standin.prompts_of import NEXT, STEP, TASK, again, program_text, reply, step_text, turns
from verifier.program import Program

OFF_BY = "Status: wrong_result\nMessage: output 0: 12 of 64 of the elements are off"
TOKEN = "rows_of_tile_000123"


@pytest.fixture(scope="module")
def plan():
    async def make():
        workshop = Workshop()
        try:
            return await workshop.plan(TASK, "train", read(turns("planner/plan")).figures)
        finally:
            await workshop.capturer.close()

    return asyncio.run(make())


@pytest.fixture(scope="module")
def first(plan):
    return answered(plan, turns("coder/first", step=step_text(STEP))).source


def answered(plan, said, present=None, fault=None):
    return read_program(reply(write(read(said), plan, fault)), TASK, present)


@pytest.mark.slow
def test_the_plan_fits_its_schema_and_covers_every_group(plan):
    said = parse(reply(write(read(turns("planner/plan")), plan, None)), PlanReply)
    titles = " ".join(step.title for step in said.steps)
    assert all(group.id in titles for group in plan.own) and len(plan.own) == 2
    assert parse(reply(write(read(turns("planner/replan", outcome="nothing passed")), plan, None)), PlanReply) == said


@pytest.mark.slow
def test_the_first_program_covers_its_step_alone(plan, first):
    assert own_in(plan, choices_of(first)) == {"g1"}
    assert "kernels.mul_softmax" in first and "torch.nn.functional.relu" in first


def test_the_next_step_is_an_edit_of_the_program(plan, first):
    said = turns("coder/step", step=step_text(NEXT), program=program_text(first))
    assert "<<<<<<< SEARCH" in write(read(said), plan, None)
    edited = answered(plan, said, first)
    assert own_in(plan, choices_of(edited.source)) == {"g1", "g3"}
    assert folded(edited.source).split() == program(plan, TASK, Options()).split()


def test_a_repair_mends_what_was_broken(plan, first):
    broken = spoiling.not_compiling(first, TOKEN)
    said = turns("coder/repair", step=step_text(STEP), program=program_text(broken), evidence=f"error: '{TOKEN}' was not declared")
    assert answered(plan, said, broken).source.split() == first.split()


def test_a_right_program_that_did_not_pass_becomes_smaller(plan, first):
    said = turns("coder/repair", step=step_text(STEP), program=program_text(first), evidence=OFF_BY)
    assert not own_in(plan, choices_of(answered(plan, said, first).source) or only(plan, set(), Options()))


def test_a_method_changes_one_thing(plan, first):
    said = turns("coder/optimise", program=program_text(first), method="`parallel-split`: split few long rows")
    changed = choices_of(answered(plan, said, first).source)
    assert changed.on("parallel-split", "g1") and own_in(plan, changed) == {"g1"}


def test_diagnoses_go_on_to_the_next_step_else_to_a_method_else_to_the_end(plan, first):
    def route(routes, methods=""):
        values = {"program": program_text(first), "diagnosis": "Class: memory. 40 % of the ceiling.", "routes": routes, "methods": methods}
        said = parse(reply(write(read(turns("verifier/diagnose", **values)), plan, None)), DiagnosisReply)
        assert "40 %" in said.bottleneck
        return said.route, said.method

    assert route("optimise, next-step, stop", "- `parallel-split`: ...") == ("next-step", None)
    assert route("optimise, stop", "- `parallel-split`: ...") == ("optimise", "parallel-split")
    assert route("optimise, stop", "- `channels-last`: ...") == ("stop", None)


def test_a_judgement_repairs(plan, first):
    said = turns("verifier/judge", program=program_text(first), evidence=OFF_BY, routes="repair, stop")
    assert parse(reply(write(read(said), plan, None)), JudgementReply).route == "repair"


def test_ideas_differ_cross_align_and_become_programs(plan, first):
    ideas = parse(reply(write(read(turns("planner/ideas")), plan, None)), IdeasReply).ideas
    assert len({idea.title for idea in ideas}) == 4
    fresh = parse(reply(write(read(turns("planner/ideas", known=ideas[0].title)), plan, None)), IdeasReply).ideas
    assert ideas[0].title not in {idea.title for idea in fresh}
    one, other = (f"{idea.title}\n{idea.text}" for idea in (ideas[0], ideas[-1]))
    crossed = parse(reply(write(read(turns("planner/cross", first=one, second=other)), plan, None)), IdeaReply)
    made = answered(plan, turns("coder/realise", idea=f"{crossed.title}\n{crossed.text}"))
    aligned = parse(reply(write(read(turns("planner/align", idea=one, program=program_text(made.source))), plan, None)), IdeaReply)
    assert set(aligned.title.split()) >= own_in(plan, choices_of(made.source))


def test_scripts_add_what_the_tree_does_not_have(plan):
    tree = "- n0: The task's own model: 1.00x\n  - n4: A way: candidate 2 (the best program)"
    first = parse(reply(write(read(turns("planner/tree", tree=tree, revision="3", why="so")), plan, None)), ScriptReply)
    assert first.revision == 3 and first.ops and {op["parent"] for op in first.ops} == {"n4"}
    known = f"{tree}\n    - n5: {first.ops[0]['title']}: open"
    assert first.ops[0]["title"] not in {
        op["title"] for op in parse(reply(write(read(turns("planner/tree", tree=known, revision="3", why="so")), plan, None)), ScriptReply).ops
    }


@pytest.mark.parametrize("kind", ["prose", "wrong-file", "stale-block"])
def test_a_reply_that_is_no_program_is_refused_with_what_explains_it(plan, first, kind):
    present = first if kind == "stale-block" else None
    said = turns("coder/repair", step=step_text(STEP), program=program_text(present)) if present else turns("coder/first", step=step_text(STEP))
    fault = Fault(kind, token=TOKEN)
    with pytest.raises(UnusableReply) as refused:
        answered(plan, said, present, fault)
    assert not fault.explained_by(read(said).evidence)
    assert fault.explained_by(read(again(said, "...", str(refused.value))).evidence)


@pytest.mark.parametrize("token", ["a", "b", "c"])
def test_broken_json_is_refused_with_what_explains_it(plan, token):
    fault = Fault("malformed-json", token=token)
    with pytest.raises(UnusableReply) as refused:
        parse(reply(write(read(turns("planner/plan")), plan, fault)), PlanReply)
    assert fault.explained_by(str(refused.value))


def test_json_in_prose_is_found(plan):
    assert parse(reply(write(read(turns("planner/plan")), plan, Fault("prose"))), PlanReply).steps


def test_faulty_programs_are_programs(plan):
    said = turns("coder/first", step=step_text(STEP))
    fine = answered(plan, said).source
    broken = answered(plan, said, fault=Fault("does-not-compile", token=TOKEN)).source
    assert TOKEN in broken and broken.replace(f"    const long tile = {TOKEN} * 2;\n    (void)tile;\n", "") == fine
    wrong = answered(plan, said, fault=Fault("wrong-result")).source
    assert wrong != fine and spoiling.OFF in wrong
    cheat = answered(plan, said, fault=Fault("cheat", "17_memo_by_address")).source
    assert "data_ptr" in cheat and "class Reference" in cheat


def test_evidence_is_what_the_prompt_tells_and_not_what_its_programs_say(plan, first):
    broken = spoiling.not_compiling(first, TOKEN)
    shown = turns("coder/repair", step=step_text(STEP), program=program_text(broken), evidence="It did not pass.")
    told = turns("coder/repair", step=step_text(STEP), program=program_text(broken), evidence=f"error: '{TOKEN}' was not declared in this scope")
    fault = Fault("does-not-compile", token=TOKEN)
    assert not fault.explained_by(read(shown).evidence)
    assert fault.explained_by(read(told).evidence)
    for kind in EVIDENCE:
        assert not Fault(kind, token=TOKEN).explained_by(read(turns("coder/first", step=step_text(STEP))).evidence), kind


def test_most_of_the_corpus_can_be_carried_over_and_is_a_program():
    names = cheats.fitting(TASK, "cpu")
    assert len(names) >= 50
    for name in names:
        source = cheats.cheat(name, TASK, "cpu")
        Program.read(source)
        assert "# hack" not in source and "verdict:" not in source


def test_the_corpus_task_itself_gets_the_cheats_word_for_word():
    source = cheats.cheat("17_memo_by_address", cheats.corpus_task("softmax"), "cpu")
    assert "class Reference" not in source and "self.scale" in source


def test_what_is_no_prompt_is_refused():
    with pytest.raises(Unreadable, match="Situation"):
        read([("user", "What is the capital of France?")])


@pytest.mark.slow
def test_a_task_that_cannot_be_captured_is_said():
    async def capture():
        capturer = Capturer()
        try:
            return await capturer.capture("class Model: pass\n", "train")
        finally:
            await capturer.close()

    with pytest.raises(RuntimeError, match="get_init_inputs"):
        asyncio.run(capture())


def test_all_faults_of_content_have_evidence():
    assert set(EVIDENCE) == set(CONTENT)
