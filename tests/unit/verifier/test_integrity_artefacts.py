"""Compiled libraries that are read as data."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from verifier.integrity.artefacts import libraries, read_library

KERNELS = """
namespace ns { template <int N> __global__ void foo(const float4* x, float4* y) { y[0] = x[N]; } }
namespace { __global__ void hidden(float* p) { *p = 2; } }
#define MAKE(op) static __global__ void op##_made(float* p) { *p = 3; }
MAKE(relu)
extern "C" int run(float4* x, cudaStream_t s) {
  ns::foo<4><<<1, 1, 0, s>>>(x, x);
  hidden<<<1, 1, 0, s>>>((float*)x);
  relu_made<<<1, 1, 0, s>>>((float*)x);
  return cudaGetLastError();
}
"""


def compiled(tmp_path, compiler: str, text: str, *flags: str) -> bytes:
    unit = tmp_path / ("unit.cu" if compiler == "nvcc" else "unit.cpp")
    unit.write_text(text)
    subprocess.run([compiler, "-O1", "-shared", *flags, str(unit), "-o", str(tmp_path / "unit.so")], check=True, capture_output=True)
    return (tmp_path / "unit.so").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on this machine")
def test_kernels_of_a_cuda_library(tmp_path):
    library = read_library(compiled(tmp_path, "nvcc", KERNELS, "-Xcompiler=-fPIC", "-arch=sm_90"))
    assert library.cuda and "run" in library.exports
    assert "_ZN2ns3fooILi4EEEvPK6float4PS1_" in library.kernels
    assert any("hidden" in name for name in library.kernels) and any("relu_made" in name for name in library.kernels)
    assert library.compute_imports == []  # the program is not responsible for the CUDA runtime's lookup of its driver


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on this machine")
def test_what_native_code_imports(tmp_path):
    text = """extern "C" {
  void cblas_sgemm();
  void* dlsym(void*, const char*);
  double exp(double);
  void go() { cblas_sgemm(); dlsym(0, "x"); exp(2.0); }
}"""
    library = read_library(compiled(tmp_path, "g++", text, "-fPIC"))
    assert not library.cuda and "go" in library.exports
    assert library.compute_imports == ["cblas_sgemm", "dlsym"]
    two = libraries([("a.so", 3), ("b.so", len(compiled(tmp_path, "g++", text, "-fPIC")))], b"bad" + compiled(tmp_path, "g++", text, "-fPIC"))
    assert two[0].exports == set() and "go" in two[1].exports


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 200, b"MZ" * 100])
def test_what_is_no_library_is_empty(data):
    assert read_library(data).exports == set()
