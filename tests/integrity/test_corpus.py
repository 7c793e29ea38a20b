"""Every program in the corpus receives the verdict that its header states, for the stated reason.

The static stage examines all of them on every commit. Whole verifications are chosen by what the commit changed (`choosing.py`); CORPUS=all runs
everything, as does a run on a GPU; CORPUS_PART=i/n runs a part, and CORPUS_RESULT=FILE.json keeps the outcome. Each cheat is tried in its hardest
form (static stage off, names changed), and also unchanged if the static stage ends it immediately. `bench/corpus.py` runs all three forms of every
program.
"""

from __future__ import annotations

import re
from functools import partial

import pytest

from tests.integrity.choosing import chosen
from tests.integrity.corpus import Desk, Entry, Form, is_timed, outcome_row, read_corpus, read_entry, refusals
from tests.verifier_data import prepared

try:
    ENTRIES = read_corpus()
except ValueError as error:
    pytest.fail(str(error), pytrace=False)


def cases(device: str) -> list:
    return [
        pytest.param(
            entry,
            form,
            id=f"{entry.kind}-{entry.name}-{form.replace(' ', '-')}",
            marks=[pytest.mark.timed] if is_timed(entry, form) else [],
        )
        for entry in chosen(ENTRIES, device)
        for form in entry.short_forms
    ]


@pytest.fixture(scope="session")
def cpu_desk(tmp_path_factory):
    headers = any("load_inline" in entry.source for entry in chosen(ENTRIES, "cpu"))
    desk = Desk("cpu", tmp_path_factory.mktemp("corpus"), prepare=partial(prepared, headers=headers))
    yield desk
    desk.close()


@pytest.fixture(scope="session")
def cuda_desk(tmp_path_factory):
    from verifier.devices import cuda_driver

    if cuda_driver.driver() is None:
        pytest.skip(f"no CUDA device: {cuda_driver.why_no_driver()}")
    desk = Desk("cuda:0", tmp_path_factory.mktemp("corpus-cuda"))
    yield desk
    desk.close()


@pytest.fixture
def kept(record_property):
    """Writes an outcome to the file that CORPUS_RESULT names (conftest.py)."""
    return lambda entry, outcome: record_property("corpus", outcome_row(entry, outcome))


def verdict(desk: Desk, entry: Entry, form: Form, kept) -> None:
    outcome = desk.check(entry, form)
    kept(entry, outcome)
    assert outcome.ok, (
        f"{entry.name} ({form}) must be {outcome.expected} because of /{entry.because}/ but is {outcome.status} "
        f"(class {outcome.program_class}, speedup {outcome.speedup}): {outcome.message}"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("entry", "form"), cases("cpu"))
def test_on_the_cpu(cpu_desk, entry, form, kept):
    verdict(cpu_desk, entry, form, kept)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("entry", "form"), cases("cuda"))
def test_on_a_gpu(cuda_desk, entry, form, kept):
    verdict(cuda_desk, entry, form, kept)


def test_the_static_stage_refuses_what_only_the_source_gives_away():
    entries = [entry for entry in ENTRIES if entry.defence == "static"]
    assert len(entries) >= 6
    passed_over = [
        (entry.name, entry.because)
        for entry in entries
        if not any(re.search(entry.because, f"{finding.rule}: {finding.message}") for finding in refusals(entry))
    ]
    assert passed_over == []


def test_the_static_stage_refuses_no_honest_program():
    entries = [entry for entry in ENTRIES if entry.kind == "honest"]
    assert len(entries) >= 40
    refused = [(entry.name, refusals(entry)[0].message) for entry in entries if refusals(entry)]
    assert refused == []


def test_a_header_that_is_wrong_says_how(tmp_path):
    folder = tmp_path / "cheats"
    folder.mkdir()
    path = folder / "17_memo.py"
    path.write_text("# hack: 99\n# task: tasks/none.py\n# device: tpu\n# verdict: maybe\n# colour: red\nimport torch\n")
    with pytest.raises(ValueError) as caught:
        read_entry(path)
    text = str(caught.value)
    for part in ("'colour'", "'because' is missing", "tasks/none.py", "'maybe'", "'tpu'", "'99'"):
        assert part in text
