"""The corpus entries that are tried for a commit, tested with made-up changes."""

from __future__ import annotations

import pytest

from tests.integrity.choosing import EVERY, SENTINELS, Changes, changes_of, code_of, groups_of, of_a_commit, part, touched
from tests.integrity.corpus import ROOT, is_timed, read_corpus

ENTRIES = [entry for entry in read_corpus() if entry.runs_on("cpu")]


def names(*files: str, which: str = "") -> set[str]:
    return {entry.name for entry in of_a_commit(ENTRIES, Changes(frozenset(files)), which)}


def test_every_sentinel_is_there_and_each_group_has_one():
    known = {entry.name: entry for entry in ENTRIES}
    assert set(SENTINELS) <= set(known)
    assert set().union(*(groups_of(known[name]) for name in SENTINELS)) == EVERY
    assert len(SENTINELS) == len(set(SENTINELS)) <= 24


def test_every_entry_belongs_to_a_group():
    assert not [entry.name for entry in read_corpus() if not groups_of(entry) & EVERY]


def test_a_commit_that_touches_no_defence_runs_the_sentinels():
    assert names("webapp/settings.py", "verifier/profiling/nsight/ncu.py", "verifier/README.md", "tests/integrity/corpus.py") == set(SENTINELS)


def test_a_changed_entry_runs_and_so_do_all_of_a_changed_task():
    assert names("tests/integrity/cheats/70_lottery.py") == {*SENTINELS, "70_lottery"}
    on_the_task = {entry.name for entry in ENTRIES if entry.task.name == "relu.py"}
    assert len(on_the_task) > 3 and names("tests/integrity/tasks/relu.py") == {*SENTINELS, *on_the_task}
    assert names("tests/integrity/tasks/relu.py", which="changed") == on_the_task


@pytest.mark.parametrize(
    ("file", "runs", "rests"),
    [
        ("verifier/confinement/seccomp.py", "44_traces_the_parent", "55_half_of_the_batch"),
        ("verifier/confinement/anything.py", "44_traces_the_parent", "55_half_of_the_batch"),
        ("verifier/timing/blocks.py", "design_late_store", "44_traces_the_parent"),
        ("verifier/correctness/trials.py", "55_half_of_the_batch", "70_lottery"),
        ("verifier/integrity/judging.py", "01_reference_in_other_words", "44_traces_the_parent"),
        ("verifier/build/extension.py", "cpu_running_state", "any_scripted"),
    ],
)
def test_a_changed_defence_runs_what_it_is_there_for(file, runs, rests):
    found = names(file)
    assert runs in found and rests not in found


def test_a_source_that_the_table_does_not_know_may_break_everything():
    assert touched(["verifier/brand_new.py"]) == EVERY == touched(["verifier/evaluation.py"])
    assert names("verifier/brand_new.py") == {entry.name for entry in ENTRIES}


@pytest.mark.parametrize("file", ["verifier/judge/judge.py", "verifier/devices/cpu.py", "verifier/parties/party.py"])
def test_machinery_that_all_share_runs_each_kind_once(file):
    known = {entry.name: entry for entry in ENTRIES}
    found = [known[name] for name in names(file)]
    assert {(entry.kind, entry.hack) for entry in found} == {(entry.kind, entry.hack) for entry in ENTRIES}
    assert {entry.task for entry in found if entry.kind == "honest"} == {entry.task for entry in ENTRIES if entry.kind == "honest"}
    assert set(SENTINELS) < set(names(file)) < set(known)


def test_programs_that_are_timed_run_once_a_kind_unless_the_clock_is_touched():
    known = {entry.name: entry for entry in ENTRIES}
    timed = {entry.name for entry in ENTRIES if any(is_timed(entry, form) for form in entry.short_forms)}
    state = {entry.name for entry in ENTRIES if "state" in groups_of(entry)}
    by_correctness, by_clock = names("verifier/correctness/trials.py"), names("verifier/timing/blocks.py")
    assert state - timed <= by_correctness and not state & timed <= by_correctness
    assert {known[name].hack for name in state} <= {known[name].hack for name in by_correctness}
    assert state <= by_clock


def test_new_words_about_the_same_code_are_no_change():
    before = '"""Old words."""\nLIMIT = 3  # old\n\n\ndef f():\n    """Old."""\n    return "text"\n'
    after = '"""New words,\n\nmore of them."""\nLIMIT = 3  # new\n\n\ndef f():\n    return "text"\n'
    assert code_of(before) == code_of(after)
    assert code_of(before) != code_of(before.replace("3", "4")) and code_of(before) != code_of(before.replace("text", "another"))


def test_a_source_with_new_words_alone_is_not_among_the_changes():
    now = (ROOT / "verifier/limits.py").read_text()

    def git(command, *arguments):
        answers = {"diff": "verifier/limits.py\nverifier/layout.py\ntests/integrity/corpus.py\ngone.py", "ls-files": "new.py"}
        if command == "show":
            return "# other words\n" + now if arguments[0].endswith("limits.py") else "print()"
        return answers.get(command, "h")

    assert changes_of(git, "base").files == {"verifier/layout.py", "tests/integrity/corpus.py", "gone.py", "new.py"}


def test_what_is_asked_for_by_name():
    everything = {entry.name for entry in ENTRIES}
    assert names(which="all") == everything and names("verifier/channel.py", which="sentinels") == set(SENTINELS)
    assert {entry.name for entry in of_a_commit(ENTRIES, Changes(None))} == everything
    assert {entry.name for entry in of_a_commit(ENTRIES, Changes(None), "sentinels")} == set(SENTINELS)
    with pytest.raises(ValueError, match="must be all, changed or sentinels"):
        names(which="some")


def test_the_parts_are_a_partition():
    parts = [part(ENTRIES, f"{index}/3") for index in range(3)]
    assert sorted(entry.name for some in parts for entry in some) == sorted(entry.name for entry in ENTRIES)
    assert all(parts) and part(ENTRIES, "") == ENTRIES
    for wrong in ("3/3", "1", "a/b"):
        with pytest.raises(ValueError, match="i/n"):
            part(ENTRIES, wrong)


class Git:
    """Answers from a table; stores the commit compared against in `base`."""

    def __init__(self, **known: str):
        self.known = {"HEAD": "h"} | known
        self.base = ""

    def __call__(self, command: str, *arguments: str) -> str | None:
        if command == "diff":
            self.base = arguments[-1]
            return "one\ntwo"
        if command == "ls-files":
            return "three"
        return self.known.get("merge_base" if command == "merge-base" else arguments[-1])


def test_a_branch_is_held_against_its_merge_base():
    git = Git(**{"origin/main": "m", "merge_base": "b"})
    assert changes_of(git).files == {"one", "two", "three"} and git.base == "b"
    assert changes_of(git, "mine").files and git.base == "mine"


def test_main_itself_is_held_against_its_first_parent():
    git = Git(**{"origin/main": "h", "merge_base": "h", "HEAD^1": "p"})
    assert changes_of(git).files and git.base == "p"


def test_in_a_clone_of_one_commit_only_uncommitted_changes_are_known():
    git = Git(**{"origin/main": "h", "merge_base": "h"})
    assert changes_of(git).files and git.base == "h"


def test_without_a_history_anything_may_have_changed():
    assert changes_of(lambda *arguments: None).files is None
    assert changes_of(Git(**{"origin/main": "m"})).files is None


def test_no_path_of_the_choice_leaves_the_repository():
    assert all(entry.path.is_relative_to(ROOT) and entry.task.is_relative_to(ROOT) for entry in ENTRIES)
