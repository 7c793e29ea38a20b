"""Builders' libraries are stored by content and within a size limit; they are never stored partially and never modified."""

import concurrent.futures
import json
import os

import pytest

from verifier.build.store import Artefacts, Store

MADE = Artefacts([("key/a.so", 3), ("b.so", 2)], b"aaabb", 1.5)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path, "g++ 12", "torch 2", "sm_90")


def test_the_same_source_is_found_and_another_compiler_is_another_entry(store, tmp_path):
    assert store.get("one") is None
    store.put("one", MADE)
    assert store.get("one") == MADE
    assert store.get("two") is None
    assert Store(tmp_path, "g++ 13", "torch 2", "sm_90").get("one") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: (entry / "libraries").write_bytes(b"aaabc"),
        lambda entry: (entry / "libraries").write_bytes(b"aaa"),
        lambda entry: (entry / "libraries").unlink(),
        lambda entry: (entry / "index.json").write_text(""),
        lambda entry: (entry / "index.json").unlink(),
        lambda entry: (entry / "index.json").write_text(json.dumps({**json.loads((entry / "index.json").read_text()), "index": [["b.so", 5]]})),
        lambda entry: (entry / "index.json").write_text(json.dumps({**json.loads((entry / "index.json").read_text()), "index": [["../b.so", 5]]})),
        lambda entry: (entry / "index.json").write_text("[]"),
    ],
    ids=["poisoned", "truncated", "no libraries", "empty index", "no index", "poisoned index", "a path", "no object"],
)
def test_a_damaged_entry_is_built_again(store, damage):
    store.put("one", MADE)
    damage(store.folder / store.key("one"))
    assert store.get("one") is None
    store.put("one", MADE)
    assert store.get("one") == MADE


def test_judges_that_build_the_same_at_once_leave_one_sound_entry(store):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            list(pool.map(lambda _: (store.put("one", MADE), store.get("one")), range(16)))
    assert store.get("one") == MADE
    assert [entry.name for entry in store.folder.iterdir()] == [store.key("one")]


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    store = Store(tmp_path, limit=12)
    for age, name in ((300, "old"), (200, "used"), (100, "young")):
        store.put(name, Artefacts([("a.so", 5)], name.encode().ljust(5), 0.0)) if name != "young" else None
        if name != "young":
            entry = store.folder / store.key(name)
            os.utime(entry, (entry.stat().st_atime - age, entry.stat().st_mtime - age))
    assert store.get("old") is not None  # it is now the most recently used
    store.put("young", MADE)
    assert store.get("used") is None and store.get("old") is not None and store.get("young") == MADE


def test_what_a_killed_judge_left_is_removed(store):
    left = store.folder / ".new-left"
    left.mkdir(parents=True)
    os.utime(left, (1, 1))
    store.put("one", MADE)
    assert not left.exists()
