"""The table of a landscape: points and indices, files, and the parts of one measurement."""

from __future__ import annotations

import gzip
import json

import pytest

from agents.arena import landscape as module
from agents.arena.landscape import STATUSES, Axis, Landscape, LandscapeError, Table, load, merged, save
from agents.arena.synthetic import synthetic


def small(name: str = "tiny", **changes) -> Landscape:
    axes = (Axis("row-cache", "g1", (0, 1), 1, "row-cache"), Axis("block", "g1", (64, 128, 256), 1, "block-size", numeric=True))
    fields = {
        "program": [0, 1, 2, 3, 4, 5], "status": [0, 0, 1, 0, 0, 0], "us": [9.0, 8.0, None, 5.0, 4.0, 6.0], "spread": [0.01] * 6,
        "bottleneck": ["memory"] * 6, "shares": [None] * 6, "launches": [1.0] * 6,
    }  # fmt: skip
    return Landscape(name=name, what="", axes=axes, eager_us=10.0, floor_us=2.0, groups=("g1",), **(fields | changes))


def test_points_and_indices_are_an_odometer():
    landscape = small()
    assert [landscape.point(i) for i in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert all(landscape.index(landscape.point(i)) == i for i in range(6))
    assert set(landscape.neighbours((1, 1))) == {(0, 0), (1, 0), (1, 2)}


def test_the_best_is_the_fastest_that_is_right_and_a_wrong_one_has_no_speed():
    landscape = small()
    assert landscape.best == 4 and landscape.best_us == 4.0 and landscape.speedup(4) == 2.5
    assert landscape.speedup(2) == 0.0
    with pytest.raises(LandscapeError, match="no program passed"):
        _ = small(status=[1] * 6).best


def test_a_point_is_described_by_what_differs_from_the_compilers_choice():
    landscape = small()
    assert landscape.describe(landscape.default) == "the compiler's own choice"
    assert landscape.describe((0, 2)) == "row-cache in g1 off, block in g1 = 256"


def test_columns_of_another_length_are_refused():
    with pytest.raises(LandscapeError, match="5 entries in 'us' for 6 points"):
        small(us=[1.0] * 5)


def test_a_table_survives_the_file_plain_and_compressed(tmp_path, monkeypatch):
    table = synthetic(2)
    written = save(table, tmp_path / "table.json")
    again = load(written)
    assert written.name == "table.json" and again.kind == "synthetic"
    assert [a.axes for a in again.landscapes] == [b.axes for b in table.landscapes]
    assert again.landscapes[0].us[3] == pytest.approx(table.landscapes[0].us[3], abs=1e-3)
    monkeypatch.setattr(module, "LARGE", 1000)
    packed = save(table, tmp_path / "table.json")
    assert packed.name == "table.json.gz" and gzip.decompress(packed.read_bytes()).startswith(b'{"format"')
    assert len(load(packed).landscapes) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, 2]", json.dumps({"format": 99}).encode(), b"\x1f\x8bnot gzip"])
def test_what_is_no_table_is_refused_with_the_file(tmp_path, content):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(LandscapeError, match=r"broken\.json"):
        load(path)


def test_parts_are_merged_and_the_fuller_one_of_a_task_is_taken():
    half = small(status=[0, 0, 4, 4, 4, 4], us=[9.0, 8.0, None, None, None, None])
    device = {"device_name": "NVIDIA H200"}
    whole = merged([Table("measured", device, [half, small("other")]), Table("measured", device, [small()])])
    assert [(landscape.name, landscape.measured) for landscape in whole.landscapes] == [("other", 6), ("tiny", 6)]
    assert half.measured == 2 and STATUSES[4] == "not_measured"


def test_a_synthetic_table_is_never_merged_with_a_measured_one():
    with pytest.raises(LandscapeError, match="not parts of one measurement"):
        merged([Table("measured", {"device_name": "a"}, [small()]), synthetic(1)])
