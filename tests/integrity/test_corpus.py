"""Every program of the corpus gets the verdict that its header states, for the stated reason.

On the CPU a run takes one of six parts of the corpus, another each day, so that it stays within minutes on two cores; CORPUS_PART=0..5 chooses
one and CORPUS_PART=all takes everything, as does a run on a GPU. Each cheat is tried in its hardest form (static stage off, names changed), and as
it is where the static stage ends it at once. All three forms of everything: `bench/corpus.py`.
"""

from __future__ import annotations

import os
import zlib

import pytest

from tests.integrity.corpus import Desk, Entry, Form, read_corpus, read_entry

try:
    ENTRIES = read_corpus()
except ValueError as error:
    pytest.fail(str(error), pytrace=False)


PARTS = 6
PART = os.environ.get("CORPUS_PART") or str(int(os.environ["STITCHWORK_TEST_DAY"]) % PARTS)


def chosen(entry: Entry, device: str) -> bool:
    return device != "cpu" or PART == "all" or zlib.crc32(entry.name.encode()) % PARTS == int(PART)


def cases(device: str) -> list:
    return [
        pytest.param(entry, form, id=f"{entry.kind}-{entry.name}-{form.replace(' ', '-')}")
        for entry in ENTRIES
        if entry.runs_on(device) and chosen(entry, device)
        for form in entry.short_forms
    ]


@pytest.fixture(scope="session")
def cpu_desk(tmp_path_factory):
    desk = Desk("cpu", tmp_path_factory.mktemp("corpus"))
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


def verdict(desk: Desk, entry: Entry, form: Form) -> None:
    outcome = desk.check(entry, form)
    assert outcome.ok, (
        f"{entry.name} ({form}) must be {outcome.expected} because of /{entry.because}/ but is {outcome.status} "
        f"(class {outcome.program_class}, speedup {outcome.speedup}): {outcome.message}"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("entry", "form"), cases("cpu"))
def test_on_the_cpu(cpu_desk, entry, form):
    verdict(cpu_desk, entry, form)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("entry", "form"), cases("cuda"))
def test_on_a_gpu(cuda_desk, entry, form):
    verdict(cuda_desk, entry, form)


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
