"""A runner's description of its cubins is checked before it is read."""

import pytest

from verifier.build.building import resources_of_cubins
from verifier.build.triton_cache import cubins
from verifier.devices.cpu import CpuDevice


@pytest.mark.parametrize("index", [None, "x", [["a", 5]], [["a", -1], ["b", 4]], [["a", True], ["b", 2]], [3], [["a", 1, 2]]])
def test_an_unsound_account_is_refused(index, tmp_path):
    with pytest.raises(ValueError, match="malformed"):
        resources_of_cubins(index, b"abc", CpuDevice(tmp_path))


def test_what_is_no_cubin_has_no_kernels(tmp_path):
    assert resources_of_cubins([["a", 3]], b"abc", CpuDevice(tmp_path)) == []


def test_the_cache_is_read_as_it_lies(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "add_kernel.cubin").write_bytes(b"code")
    (tmp_path / "one" / "add_kernel.ptx").write_bytes(b"text")
    (tmp_path / "one" / "link.cubin").symlink_to("/etc/passwd")
    found = cubins()
    assert found["index"] == [("add_kernel", 4)] and found["raw"] == b"code"
