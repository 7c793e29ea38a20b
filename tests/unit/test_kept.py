"""Files that tests keep between runs: created once even if several processes request them simultaneously, deleted by age and by size, and named by
everything that they depend on."""

import os
import time
from multiprocessing.pool import ThreadPool

import pytest

from tests import kept


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def aged(name: str, size: int, seconds: float):
    place = kept.folder("some") / name
    place.write_bytes(bytes(size))
    os.utime(place, (time.time() - seconds,) * 2)
    return place


def test_what_two_ask_for_is_made_once():
    asked = []

    def make(scratch):
        asked.append(scratch)
        time.sleep(0.05)
        scratch.write_text("made")

    place = kept.folder("some") / "file"
    with ThreadPool(4) as pool:
        assert {found.read_text() for found in pool.map(lambda _: kept.made(place, make), range(4))} == {"made"}
    assert len(asked) == 1


def test_what_fails_is_not_kept():
    def fail(scratch):
        scratch.write_text("half")
        raise ZeroDivisionError

    place = kept.folder("some") / "file"
    with pytest.raises(ZeroDivisionError):
        kept.made(place, fail)
    assert not place.exists()
    assert kept.made(place, lambda scratch: scratch.write_text("whole")).read_text() == "whole"


def test_old_ones_go_and_the_least_recently_used_beyond_the_size():
    old = aged("old", 1, kept.UNUSED_SECONDS + 60)
    places = [aged(f"{hours}", 100, hours * 3600) for hours in (2, 3, 4)]
    kept.drop_unused(most=250)
    assert [place.exists() for place in (old, *places)] == [False, True, True, False]


def test_what_a_run_uses_stays_whatever_its_size():
    place = aged("large", 1000, 60)
    kept.drop_unused(most=10)
    assert place.exists()


def test_use_keeps():
    place = aged("old", 1, kept.UNUSED_SECONDS + 60)
    kept.made(place, lambda scratch: pytest.fail("it is there"))
    kept.drop_unused()
    assert place.exists()


def test_flags_of_the_environment_are_in_the_key_of_the_compiler(monkeypatch):
    """For example, a different folder of headers changes the key."""
    before = kept.compiler.__wrapped__()
    assert before == kept.compiler.__wrapped__()
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", os.environ["XDG_CACHE_HOME"])
    assert before != kept.compiler.__wrapped__()
