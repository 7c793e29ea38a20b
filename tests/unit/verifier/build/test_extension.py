"""Accelerated builds of extensions: they give the same machine code, record their detours, and do not compile erroneous units twice."""

from pathlib import Path

import extension_bench
import pytest

from verifier.build import extension, light, steps
from verifier.build.extension import Accelerator, NotOurs, is_final, read_ninja
from verifier.build.steps import read_steps, run_nvcc
from verifier.build.store import compiler_problems, trimmed

needs_nvcc = pytest.mark.skipif(not extension_bench.has_nvcc(), reason="no nvcc on this machine")


def include() -> str:
    from torch.utils.cpp_extension import include_paths

    return include_paths()[0]


@pytest.fixture
def flags(monkeypatch, tmp_path):
    return lambda source, **options: extension_bench.ninja_file(tmp_path / "unit", source, monkeypatch, **options)


# Light headers


def test_only_what_is_called_is_declared():
    files = light.light_headers("auto y = x.contiguous(); y.add_(1); auto z = torch::zeros_like(x); /* x.softmax(0) */", include())
    body = files["ATen/core/TensorBody.h"]
    assert "add_(const at::Scalar & other" in body and "at::Tensor softmax(" not in body
    assert "#include <ATen/ops/zeros_like.h>" in files["stitch_light.h"] and "softmax" not in files["stitch_light.h"]
    assert "MethodOperators" not in body
    assert set(light.UMBRELLAS) <= set(files)


@pytest.mark.parametrize(
    "source", ["torch::nn::functional::relu(x);", "PYBIND11_MODULE(a, m) {}", "torch::tensor({1.0});", "x.requires_grad();", "py::object o;"]
)
def test_the_front_end_keeps_the_ordinary_headers(source):
    with pytest.raises(light.NotLight, match="the source names"):
        light.light_headers(source, include())


def test_words_in_comments_and_strings_do_not_count():
    light.light_headers('// torch::nn\nTORCH_CHECK(ok, "no torch::nn here"); int py = 3;', include())


def test_the_check_of_cuda_calls_is_torchs_own_and_needs_no_library():
    context = light.light_headers("#include <ATen/cuda/CUDAContext.h>\nAT_CUDA_CHECK(cudaGetLastError());", include())["ATen/cuda/CUDAContext.h"]
    macro = next(line for line in context.splitlines() if line.startswith("#define AT_CUDA_CHECK"))
    assert macro in Path(include(), "ATen/cuda/Exceptions.h").read_text().splitlines() and "cublas" not in context


def test_a_foreign_torch_is_not_cut(tmp_path):
    with pytest.raises(light.NotLight):
        light.light_headers("int x;", str(tmp_path))


def test_precompiled_headers_are_named_by_flags_that_matter():
    flags = ["-DTORCH_EXTENSION_NAME=a", "-isystem", "/usr/include/a", "-fPIC", "-std=c++17"]
    same = ["-DTORCH_EXTENSION_NAME=b", "-isystem", "/usr/include/b", "-fPIC", "-std=c++17"]
    assert light.precompiled_key(flags) == light.precompiled_key(same) != light.precompiled_key([*flags, "-O3"])


# torch's ninja file


def test_unusual_builds_are_left_to_ninja(tmp_path):
    Path(tmp_path, "build.ninja").write_text("cxx = g++\nbuild a.o: sycl_compile a.sycl\nbuild a.so: link a.o\n")
    with pytest.raises(NotOurs):
        read_ninja(str(tmp_path))
    called = []
    accelerator = Accelerator("", lambda *arguments: called.append(arguments))
    accelerator.build(str(tmp_path), False, "Error building extension 'a'")
    assert len(called) == 1 and accelerator.notes == ["ninja: a rule sycl_compile"]


# Errors


def test_a_mistyped_name_is_final_and_a_name_of_torch_is_not(monkeypatch):
    monkeypatch.setattr(extension, "known_to_headers", lambda name, include: name == "make_tensor_iterator")
    assert is_final('cuda.cu(9): error: identifier "sise" is undefined\n', "")
    assert is_final('cuda.cu(9): error: expected a ";"\n', "")
    assert is_final("main.cpp:9:5: error: 'sise' was not declared in this scope\n", "")
    assert not is_final('cuda.cu(9): error: identifier "make_tensor_iterator" is undefined\n', "")
    assert not is_final('cuda.cu(9): error: namespace "torch" has no member "foo"\n', "")
    assert not is_final("killed\n", "")


# nvcc


@needs_nvcc
def test_steps_make_what_nvcc_makes(tmp_path):
    source = tmp_path / "kernels.cu"
    source.write_text('__global__ void twice(float* x) { x[threadIdx.x] *= 2.f; }\nextern "C" void run(float* x) { twice<<<1, 32>>>(x); }\n')
    from verifier.devices.cuda import find_nvcc
    from verifier.profiling.binaries.cubin import kernels

    command = [find_nvcc(), "-O3", "-arch=sm_90", "-c", str(source), "-o"]
    plain = extension_bench.subprocess.run([*command, str(tmp_path / "plain.o")], capture_output=True)
    assert plain.returncode == 0
    dry = extension_bench.subprocess.run([*command, "x.o", "--dryrun"], capture_output=True, text=True)
    assert read_steps(dry.stderr) is not None, "this nvcc's steps are not known: it would run unaided"
    done = run_nvcc([*command, str(tmp_path / "steps.o")], str(tmp_path))
    assert done.returncode == 0, done.output
    code = [[(k.symbol, k.code) for k in kernels((tmp_path / name).read_bytes())] for name in ("plain.o", "steps.o")]
    assert code[0] == code[1] and code[0]


@needs_nvcc
def test_several_architectures_are_left_to_nvcc():
    from verifier.devices.cuda import find_nvcc

    command = [find_nvcc(), "-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90", "-c", "x.cu", "-o", "x.o", "--dryrun"]
    assert read_steps(extension_bench.subprocess.run(command, capture_output=True, text=True).stderr) is None


@needs_nvcc
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_light_headers_compile_a_usual_program(flags):
    code, notes = extension_bench.accelerated(flags(extension_bench.ADD))
    assert notes == ["cuda.cu: light headers"] and list(code) == ["_Z3addPKfS0_Pfi"]


@needs_nvcc
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_machine_code_is_that_of_the_ordinary_build(flags):
    """Both programs are in one unit, because the ordinary headers cost more than a minute here."""
    source = extension_bench.MANY + extension_bench.ADD.replace("torch::Tensor run(", "torch::Tensor add_them(").replace(extension_bench.HEAD, "")
    ninja = flags(source, extra_cuda_cflags=["-O3", "--use_fast_math"])
    fast, notes = extension_bench.accelerated(ninja)
    assert notes == ["cuda.cu: light headers"]
    slow = extension_bench.ordinary(ninja)
    assert fast.keys() == slow.keys() and len(slow) >= 9
    assert all(fast[name] == slow[name] for name in slow)


def test_what_light_headers_cannot_do_is_compiled_in_the_ordinary_way(tmp_path, monkeypatch):
    """Uses compilers that only inspect their command: the detour is taken once and reported."""
    include = str(tmp_path / "include")
    Path(include, "ATen", "core").mkdir(parents=True)
    Path(include, "ATen", "core", "TensorBody.h").write_text("")
    source = tmp_path / "cuda.cu"
    source.write_text("torch::Tensor twice(torch::Tensor x) { return x + x; }\n")
    text = f"nvcc = nvcc\ncxx = g++\ncflags = -isystem {include}\ncuda_cflags = -O3\n"
    text += f"build cuda.cuda.o: cuda_compile {source}\nbuild x.so: link cuda.cuda.o\n"
    Path(tmp_path, "build.ninja").write_text(text)
    monkeypatch.setattr(extension, "light_headers", lambda source, include: {"torch/extension.h": ""})
    commands = []

    def compile_ordinary(command, folder):
        commands.append(command)
        light_one = "-I" in command
        return steps.Done(1 if light_one else 0, 'cuda.cu(1): error: no operator "+" matches these operands\n' if light_one else "")

    linked = []
    monkeypatch.setattr(extension, "run_nvcc", compile_ordinary)
    monkeypatch.setattr(
        extension.subprocess, "run", lambda command, **_: linked.append(command) or extension.subprocess.CompletedProcess(command, 0, "", "")
    )
    accelerator = Accelerator("", lambda *_: None)
    accelerator.build(str(tmp_path), False, "Error building extension 'x'")
    assert [("-I" in command) for command in commands] == [True, False]
    assert commands[1] == ["nvcc", "-O3", "-c", str(source), "-o", "cuda.cuda.o"] and len(linked) == 1
    assert accelerator.notes == ['cuda.cu: ordinary headers: it does not compile with light ones: no operator "+" matches these operands']


def test_an_error_of_a_unit_has_the_programs_line(tmp_path, monkeypatch):
    """torch appends a compiler's output to its own message: the output must start on a new line, or the first error would have no file or line."""
    source = tmp_path / "cuda.cu"
    source.write_text("int a;\nint b = c;\n")
    text = f"nvcc = nvcc\ncxx = g++\ncflags =\ncuda_cflags = -O3\nbuild cuda.cuda.o: cuda_compile {source}\nbuild x.so: link cuda.cuda.o\n"
    Path(tmp_path, "build.ninja").write_text(text)
    said = steps.Done(2, f'{source}(2): error: identifier "c" is undefined\n')
    monkeypatch.setattr(extension, "run_nvcc", lambda command, folder: said)
    with pytest.raises(RuntimeError) as raised:
        Accelerator("", lambda *_: None).build(str(tmp_path), False, "Error building extension 'x'")
    program = 'import torch\n\nsource = """int a;\nint b = c;\n"""\n'
    (problem,) = compiler_problems(trimmed(str(raised.value)), program)
    assert problem.line == 4 and problem.message == 'identifier "c" is undefined'
