"""Builds run alongside the reference: a failure ends the other work, raw kernels need no torch, and extensions follow torch's own procedure."""

import time

import pytest
from verifier_bench import HELPER, Bench, built

from tests.verifier_data import prepared
from verifier.build.building import Building
from verifier.build.headers import Headers
from verifier.build.store import Store
from verifier.devices.opening import open_device
from verifier.judge.pool import Pool
from verifier.limits import Limits
from verifier.program import Program

SLOW_TASK = """import time
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        time.sleep(5)
        return x + 1


def get_inputs():
    return [torch.rand(8, 8)]


def get_init_inputs():
    return []
"""
KERNEL = """
#include <cstdint>
extern "C" void twice(const float* x, float* y, int64_t n) { for (int64_t i = 0; i < n; i++) y[i] = 2 * x[i]; }
"""
EXTENSION = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor softmax(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 2, "a matrix, please");
    return at::_softmax(x, -1, false);
}
"""
extension = load_inline(name="softmax_ext", cpp_sources=source, functions=["softmax"], extra_cflags=["-O1"])


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return extension.softmax(x) * self.scale
'''


@pytest.fixture
def workshop(tmp_path):
    """Yields a pool with its own headers and store, used only for builds."""
    device = open_device("cpu", prepared(tmp_path))
    headers = Headers(tmp_path)
    pool = Pool(device, Limits(build=600, start=300), spares=0, builder_binds=[headers.bind])
    (tmp_path / "builds").mkdir()
    yield pool, Store(tmp_path / "builds"), headers
    pool.close()


def test_a_program_that_does_not_compile_does_not_wait_for_the_reference(bench: Bench):
    """Preparing the task takes three calls of five seconds each."""
    begin = time.monotonic()
    report = bench.verify(built(KERNEL.replace("2 * x[i]", "2 * z[i]"), "return x"), SLOW_TASK)
    assert report.status == "build_failed" and "z" in report.message
    assert [stage.name for stage in report.stages] == ["static", "build"]
    assert report.stages[1].seconds < time.monotonic() - begin
    assert bench.verify(built(KERNEL, "return x * 0")).status == "wrong_result"  # the next program is still judged


def test_a_raw_kernel_is_ready_when_the_program_asks_for_it(workshop):
    pool, store, headers = workshop
    source = built(KERNEL, "return x")
    building = Building(pool, store, Program.read(source), headers)
    artefacts, info = building.result()
    building.close()
    assert len(artefacts.index) == 1 and artefacts.data[:4] == b"\x7fELF"
    assert info.notes == ["1 raw library: compiled before the program was imported"]
    assert artefacts.seconds == info.seconds > 0.01, "the compiler's time is part of the build's"
    again = Building(pool, store, Program.read(source), headers)
    assert again.result()[1].cached and again.result()[0] == artefacts
    again.close()


def test_a_raw_source_that_is_computed_is_compiled_by_the_program(workshop):
    pool, store, headers = workshop
    building = Building(
        pool,
        store,
        Program.read(built(KERNEL, "return x").replace('"cpp", SOURCE', '"cpp", SOURCE.strip()')),
        headers,
    )
    artefacts, info = building.result()
    building.close()
    assert len(artefacts.index) == 1 and info.notes == []


def test_builders_see_no_build_of_others(workshop):
    """The cache belongs to the judge: the sandbox contains neither its folder nor a way to write to the headers."""
    pool, store, headers = workshop
    probe = f"""
import os
class ModelNew: pass
for folder in ({str(store.folder)!r}, {headers.shown!r}):
    try:
        os.listdir(folder)
        open(os.path.join(folder, "left"), "w")
    except OSError as error:
        continue
    raise SystemExit("written: " + folder)
"""
    building = Building(pool, store, Program.read(probe), headers)
    building.result()
    building.close()
    assert not (headers.folder / "left").exists() and not (store.folder / "left").exists()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_an_extension_is_built_with_slim_headers_then_with_precompiled_ones(workshop):
    pool, store, headers = workshop
    building = Building(pool, store, Program.read(EXTENSION), headers)
    artefacts, info = building.result()
    building.close()
    assert [name.partition("/")[2] for name, _ in artefacts.index] == ["softmax_ext.so"]
    assert info.notes == ["main.cpp: slim headers"]
    assert len(headers.wanted) == 1
    headers.begin(pool)
    headers.wait()
    assert headers.count() == 1 and not headers.wanted
    other = EXTENSION.replace("softmax_ext", "softmax_two")
    building = Building(pool, store, Program.read(other), headers)
    _, info = building.result()
    building.close()
    assert info.notes == ["main.cpp: slim headers, precompiled"]
    # A damaged header is not used, but is rebuilt at the next request.
    entry = next(headers.folder.iterdir())
    with open(entry / "stitch_binding.h.gch", "r+b") as file:
        file.truncate(1000)
    assert Headers(headers.folder.parents[1]).checked().count() == 0


def test_the_helper_is_the_one_that_verifiers_know():
    assert HELPER.read_text().startswith("# --- stitchwork build helper 1")
