"""Printed CUDA programs: they build for sm_90, and their Python side parses. They run only on a GPU (tests/gpu)."""

import ast
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from compiler import DeviceFigures, Options
from compiler.families.product import warpgroup
from tests import kept
from tests.emulator import as_cpp

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.py"))
NVCC = shutil.which("nvcc") or ("/usr/local/cuda/bin/nvcc" if os.path.exists("/usr/local/cuda/bin/nvcc") else "")
needs_nvcc = pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
QUICK = {"softmax", "resnet_block", "cumsum_scale"}


def kernels(text: str) -> str:
    return text.split('SOURCE = r"""')[1].split('"""')[0]


@cache
def nvcc() -> str:
    """Returns a key that covers nvcc and the compiler that it calls."""
    version = subprocess.run([NVCC, "--version"], capture_output=True, text=True, check=True).stdout
    return kept.key(version, os.path.realpath(NVCC), kept.compiler())[:16]


def build(source: str, folder: Path, *flags: str) -> str:
    """Returns nvcc's messages for a source that it builds."""
    flags = flags or ("-arch=sm_90",)
    unit = folder / "kernels.cu"
    unit.write_text(source)

    def make(scratch: Path) -> None:
        command = [NVCC, *flags, "-O3", "-std=c++17", "-cubin", "-Xptxas", "-v", str(unit), "-o", str(folder / "kernels.cubin")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        scratch.write_text(done.stderr)

    return kept.made(kept.folder("nvcc-" + nvcc()) / kept.key(Path(__file__).read_text(), source, *flags), make).read_text()


@needs_nvcc
@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem, marks=() if p.stem in QUICK else pytest.mark.slow) for p in EXAMPLES])
@pytest.mark.parametrize("split", [False, True], ids=["plain", "split"])
def test_builds_without_spills(compiled, path, split, tmp_path):
    options = Options().with_strategy("parallel-split") if split else Options()
    found = compiled(path.read_text(), figures=DeviceFigures.h200(), options=options)
    ast.parse(found.text)
    said = build(kernels(found.text), tmp_path)
    assert "error" not in said
    assert all(" 0 bytes spill stores" in line for line in said.splitlines() if "bytes spill" in line)


@pytest.mark.slow
@needs_nvcc
def test_tiles_of_several_heights_build_together(compiled, task, tmp_path):
    """Each tile uses a product for its number of columns, even one that is defined below the tile. Products that load the image have few registers to
    spare."""
    layers = [f"self.c{at} = nn.Conv2d(64, 64, 3, padding=1)\nself.r{at} = nn.MaxPool2d(2)" for at in range(3)]
    body = "return self.c2(self.r1(self.c1(self.r0(self.c0(x)))))"
    source = task(body, "torch.randn(16, 64, 224, 224)", "\n".join(layers))
    found = compiled(source, figures=DeviceFigures.h200(), options=Options(knobs={"windowed": 1}))
    text = kernels(found.text)
    assert text.count("multiply_group(Columns<") > 1 and "WindowTile<" in text
    said = build(text, tmp_path, *warpgroup.FLAGS)
    assert all(" 0 bytes spill stores" in line for line in said.splitlines() if "bytes spill" in line)


@needs_nvcc
@pytest.mark.parametrize(
    ("precision", "vector", "single"), [("fp32-strict", "st.global.v4.f32", "st.global.f32"), ("bf16", "st.global.v4.u32", "u16")]
)
def test_images_are_stored_as_vectors(compiled, task, tmp_path, precision, vector, single):
    """Batch norm writes to rows of rows: nvcc (13.0) stores element by element if the pointer's offset is added term by term."""
    found = compiled(
        task("return self.norm(x)", "torch.randn(16, 32, 64, 64)", "self.norm = nn.BatchNorm2d(32)"),
        figures=DeviceFigures.h200(),
        precision=precision,
    )
    unit = tmp_path / "kernels.cu"
    unit.write_text(kernels(found.text))
    subprocess.run([NVCC, "-arch=sm_90", "-O3", "-std=c++17", "-ptx", str(unit), "-o", str(tmp_path / "kernels.ptx")], check=True)
    stores = [line.split()[0] for line in (tmp_path / "kernels.ptx").read_text().splitlines() if line.strip().startswith("st.global")]
    assert vector in stores and sum(single in store for store in stores) <= 3, "running statistics are single elements"


@needs_nvcc
def test_pointwise_with_every_type_builds(compiled, task, tmp_path):
    body = (
        "y = torch.where(m & (i > 2), F.gelu(x) + F.mish(x), F.elu(x).clamp(-1, 2)) * x**3 + x.amax(-1, keepdim=True)\n"
        "return y, (i * 2 + 1) & 7, ~m, x.t() + 1, F.softmax(y, -1) * i, torch.cumsum(x, 1)"
    )
    inputs = "torch.rand(60, 60), torch.randint(0, 9, (60, 60)), torch.rand(60, 60) > 0.5"
    found = compiled(task(body, inputs, arguments="x, i, m"), figures=DeviceFigures.h200())
    build(kernels(found.text), tmp_path)


def test_cuda_graph_copies_in_and_out_and_restores_state(compiled):
    path = next(p for p in EXAMPLES if p.stem == "resnet_block")
    found = compiled(path.read_text(), figures=DeviceFigures.h200(), options=Options().with_strategy("cuda-graph"))
    tree = ast.parse(found.text)
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew")
    methods = {n.name: ast.unparse(n) for n in model.body if isinstance(n, ast.FunctionDef)}
    assert {"__init__", "compute", "record", "forward", "_apply", "load_state_dict"} <= set(methods)
    assert "held.copy_(value)" in methods["forward"] and "results.clone()" in methods["forward"]
    assert "self.bn1.running_var" in methods["record"] and "value.copy_(before)" in methods["record"]


def test_launches_are_checked_and_take_the_current_stream(compiled):
    path = next(p for p in EXAMPLES if p.stem == "softmax")
    text = compiled(path.read_text(), figures=DeviceFigures.h200()).text
    assert "stream = torch._C._cuda_getCurrentRawStream(x.get_device())" in text
    assert "check(kernels.softmax(x.data_ptr(), softmax.data_ptr(), stream))" in text
    assert "cudaGetLastError" in text and "Synchronize" not in text


def test_no_variable_hides_the_function_that_it_calls(compiled, task):
    found = compiled(
        task("a, b = torch.isnan(x), torch.isinf(x)\nreturn torch.where(a | b, 0.0, x) + a + b", "torch.randn(64, 64)"), figures=DeviceFigures.h200()
    )
    assert "isnan(" in found.text and " isnan =" not in found.text and " isinf =" not in found.text


def test_a_sum_over_one_element(compiled, task):
    """A batch of one leaves a loss with no axis longer than one."""
    found = compiled(task("return F.cross_entropy(x, y) + F.softmax(x.mean(), 0)", "torch.randn(1, 7), torch.randint(7, (1,))", arguments="x, y"),
                     figures=DeviceFigures.h200())  # fmt: skip
    assert found.own
    found.text = as_cpp(found.text)
    found.check()
