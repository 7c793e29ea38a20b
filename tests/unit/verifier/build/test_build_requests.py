"""A request is the same in every process and every folder, and for every order of arguments; a stranger's description of one is not trusted."""

import json
import os
import subprocess
import sys
from types import ModuleType

import pytest

from verifier.build.request import BuildRequest, CommonFlags, RequestError, request_of
from verifier.build.wish import STATUS, Wish


def load_inline(
    name, cpp_sources, cuda_sources=None, functions=None, extra_cflags=None, extra_cuda_cflags=None, extra_include_paths=None, build_directory=None,
    verbose=False, is_python_module=True,
):  # fmt: skip
    """Has the part of torch's signature that this test reads."""


def load(name, sources, extra_cflags=None, extra_include_paths=None, build_directory=None, verbose=False, is_standalone=False):
    """Has the part of torch's signature that this test reads."""


def inline(home, *arguments, changed=None, **keywords):
    return request_of("load_inline", load_inline, arguments, keywords, str(home), changed or {})


def files(home, *arguments, **keywords):
    return request_of("load", load, arguments, keywords, str(home), {})


def test_where_how_loudly_and_in_which_order_makes_no_difference(tmp_path):
    one = inline(tmp_path, "a", "int x;", functions=["f"], verbose=True)
    assert one.key == inline(tmp_path, name="a", cpp_sources="int x;", cuda_sources=None, functions=["f"], build_directory="/nowhere").key
    assert one.key == inline(tmp_path, "a_1234", "int x;", None, ("f",)).key  # a module's name is also a file name
    assert one.key != inline(tmp_path, "a", "int y;", functions=["f"]).key
    assert one.key != inline(tmp_path, "a", "int x;", functions=["f"], extra_cflags=["-O3"]).key
    assert one.key != inline(tmp_path, "a", "int x;", functions=["f"], changed={"CPATH": "/opt/include"}).key
    arch = {"TORCH_CUDA_ARCH_LIST": "9.0a"}
    assert one.key == inline(tmp_path, "a", "int x;", functions=["f"], changed=arch).key  # none of it is for a GPU
    assert inline(tmp_path, "a", "", "int x;").key != inline(tmp_path, "a", "", "int x;", changed=arch).key


def test_changes_to_the_common_flags_become_flags_of_requests_for_cuda(tmp_path):
    extension = ModuleType("cpp_extension")
    flags = ["-D__CUDA_NO_HALF_OPERATORS__", "-DX=1", "--expt-relaxed-constexpr"]
    vars(extension)["COMMON_NVCC_FLAGS"] = list(flags)
    common = CommonFlags(extension)
    assert common.changes() == []
    extension.COMMON_NVCC_FLAGS.remove("-D__CUDA_NO_HALF_OPERATORS__")  # the form that programs use
    assert common.changes() == ["-U__CUDA_NO_HALF_OPERATORS__"]
    extension.COMMON_NVCC_FLAGS = ["--use_fast_math", "--expt-relaxed-constexpr"]
    assert common.changes() == ["-U__CUDA_NO_HALF_OPERATORS__", "-UX", "--use_fast_math"]
    with common.original():
        assert flags == extension.COMMON_NVCC_FLAGS and common.changes() == []
    assert extension.COMMON_NVCC_FLAGS == ["--use_fast_math", "--expt-relaxed-constexpr"]

    def request(*arguments, **keywords):
        return request_of("load_inline", load_inline, arguments, keywords, str(tmp_path), {}, common.changes())

    asked = request("a", "", "int x;", extra_cuda_cflags=["-O3"]).arguments["extra_cuda_cflags"]
    assert asked == ["-U__CUDA_NO_HALF_OPERATORS__", "-UX", "--use_fast_math", "-O3"]
    assert "extra_cuda_cflags" not in request("a", "int x;").arguments


def test_a_name_counts_where_operators_are_registered_under_it(tmp_path):
    source = "TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}"
    assert inline(tmp_path, "a", source).key != inline(tmp_path, "b", source).key
    assert inline(tmp_path, "a", "int x;", is_python_module=False).key != inline(tmp_path, "b", "int x;", is_python_module=False).key


def test_files_travel_by_their_texts_and_the_names_of_folders_do_not_count(tmp_path):
    found = []
    for number, folder in enumerate(["one", "two"]):
        home = tmp_path / folder
        made = home / f"tmp{number}x" / "src"
        made.mkdir(parents=True)
        (made / "k.cpp").write_text('#include "k.h"\n#include <vector>\nint f() { return K; }')
        (made / "k.h").write_text("#define K 1")
        (made / "unused.h").write_text(str(number))
        found.append(files(home, "k", [made / "k.cpp"], extra_include_paths=[str(made), "/usr/include"]))
    assert found[0].key == found[1].key
    assert sorted(found[0].files) == ["tmp0x/src/k.cpp", "tmp0x/src/k.h"]
    placed = found[0].placed("/elsewhere")
    assert placed["sources"] == ["/elsewhere/tmp0x/src/k.cpp"] and placed["extra_include_paths"] == ["/elsewhere/tmp0x/src", "/usr/include"]
    (tmp_path / "two" / "tmp1x" / "src" / "k.h").write_text("#define K 2")
    home = tmp_path / "two"
    assert files(home, "k", [home / "tmp1x/src/k.cpp"], extra_include_paths=[str(home / "tmp1x/src"), "/usr/include"]).key != found[0].key


def test_headers_in_the_build_directory_and_in_flags_are_found(tmp_path):
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "k.h").write_text("#define K 1")
    (tmp_path / "forced.h").write_text("#define F 1")
    request = inline(
        tmp_path, "a", '#include "k.h"\nint x = K;', build_directory=str(tmp_path / "build"), extra_cflags=["-include", f"{tmp_path}/forced.h"]
    )
    assert sorted(request.files) == ["build/k.h", "forced.h"]
    placed = request.placed("/h")
    assert placed["extra_include_paths"] == ["/h/build"] and placed["extra_cflags"] == ["-include", "/h/forced.h"]
    assert inline(tmp_path, "a", "int x;", extra_cuda_cflags=[f"-I{tmp_path}/build"]).placed("/h")["extra_cuda_cflags"] == ["-I/h/build"]


def test_a_file_that_did_not_come_along_is_said(tmp_path):
    with pytest.raises(RequestError, match="csrc/k.cu, which is not there: a program is one source file and comes without other files"):
        files(tmp_path, "k", [str(tmp_path / "csrc/k.cu")])
    (tmp_path / "k.cpp").write_text("int main() {}")
    with pytest.raises(RequestError, match="must not start processes"):
        files(tmp_path, "k", str(tmp_path / "k.cpp"), is_standalone=True)


def test_a_request_survives_its_way_through_the_judge(tmp_path):
    (tmp_path / "k.cpp").write_text("int f();")
    for request in (inline(tmp_path, "a", ["int x;"], functions={"f": "does"}), files(tmp_path, "k", str(tmp_path / "k.cpp"))):
        again = BuildRequest.read(json.loads(json.dumps(request.data())))
        assert again == request and again.key == request.key


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "exec"},
        {"files": {"../../x": ""}},
        {"files": {"/etc/x": ""}},
        {"files": [1]},
        {"variables": {"LD_PRELOAD": "x"}},
        {"arguments": {"cpp_sources": [["x"]]}},
        {"arguments": {"cpp_sources": "x" * (9 << 20)}},
        {"name": 3},
    ],
)
def test_an_unsound_account_is_refused(damage):
    sound = {"kind": "load_inline", "name": "a", "arguments": {"cpp_sources": "x"}, "files": {}, "variables": {}}
    assert BuildRequest.read(sound).name == "a"
    with pytest.raises(ValueError):
        BuildRequest.read(sound | damage)


def test_a_wish_is_read_once_its_process_has_ended():
    wish = Wish()
    assert wish.read() is None
    script = f"from verifier.build.wish import tell\ntry:\n    tell({wish.fd}, {{'request': 1}})\nexcept BaseException:\n    pass"
    done = subprocess.run([sys.executable, "-c", script], pass_fds=[wish.fd])
    assert done.returncode == STATUS and wish.read() == {"request": 1}
    for garbage in (b"\xff" * 64, (9).to_bytes(8, "little") + b"[[[[[[[[[", (2).to_bytes(8, "little") + b"[]"):
        os.pwrite(wish.fd, garbage, 0)
        assert wish.read() is None
    with pytest.raises(OSError):
        os.ftruncate(wish.fd, 1 << 30)
    wish.close()
