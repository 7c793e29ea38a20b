"""The programs of the robustness series: good ones, wrong ones, and those that hang, crash, exhaust memory or fork endlessly."""

# sandboxed: holds the sources of hostile programs as text, and runs none of them

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HELPER = (Path(__file__).resolve().parent.parent / "verifier" / "build" / "inline_helper.py").read_text()
SHAPES = {"cpu": (256, 1024), "cuda": (2048, 4096)}

_TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.rand({rows}, {columns}) * 8 - 4]


def get_init_inputs():
    return []
"""

_CPU = r"""
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
extern "C" int softmax(const float* x, float* y, long rows, long columns, void*) {
  for (long r = 0; r < rows; ++r) {
    const float* a = x + r * columns;
    float* b = y + r * columns;
    float top = a[0], sum = 0;
    for (long i = 1; i < columns; ++i) top = a[i] > top ? a[i] : top;
    for (long i = 0; i < columns; ++i) { b[i] = std::exp(a[i] - top); sum += b[i]; }
    for (long i = 0; i < columns; ++i) b[i] = b[i] / sum @WRONG@;
  }
  return 0;
}
extern "C" int hang() { for (volatile long i = 0;; i = i + 1) {} }
extern "C" int crash() { *(volatile int*)16 = 1; return 0; }
extern "C" int eat() {
  for (;;) {
    void* p = mmap(nullptr, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    madvise(p, 64 << 20, MADV_HUGEPAGE);  // a page at a time, the clock could be faster than the memory
    memset(p, 1, 64 << 20);
  }
}
extern "C" int bomb() { for (;;) fork(); }
"""

_CUDA = r"""
#include <cuda_runtime.h>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

// One block a row of 4 * 256 * 4 elements: the row stays in registers between the three steps.
__global__ void __launch_bounds__(256) row_softmax(const float4* __restrict__ x, float4* __restrict__ y, int columns4) {
  __shared__ float shared[32];
  const float4* row = x + (size_t)blockIdx.x * columns4;
  float4* out = y + (size_t)blockIdx.x * columns4;
  float4 held[4];
  auto reduce = [&](float v, bool maximum) {
    for (int o = 16; o; o >>= 1) { float w = __shfl_xor_sync(~0u, v, o); v = maximum ? fmaxf(v, w) : v + w; }
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : (maximum ? -INFINITY : 0.f);
    for (int o = 16; o; o >>= 1) { float w = __shfl_xor_sync(~0u, v, o); v = maximum ? fmaxf(v, w) : v + w; }
    return v;
  };
  float top = -INFINITY, sum = 0.f;
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    held[i] = row[threadIdx.x + i * blockDim.x];
    top = fmaxf(top, fmaxf(fmaxf(held[i].x, held[i].y), fmaxf(held[i].z, held[i].w)));
  }
  top = reduce(top, true);
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    held[i] = make_float4(expf(held[i].x - top), expf(held[i].y - top), expf(held[i].z - top), expf(held[i].w - top));
    sum += held[i].x + held[i].y + held[i].z + held[i].w;
  }
  float scale = 1.f / reduce(sum, false) @WRONG@;
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    held[i].x *= scale; held[i].y *= scale; held[i].z *= scale; held[i].w *= scale;
    out[threadIdx.x + i * blockDim.x] = held[i];
  }
}

__global__ void forever(volatile float* p) { while (p[0] != -1.25f) {} }
__global__ void beyond(float* p) { p[(size_t)1 << 40] = 1.f; }

extern "C" int softmax(const float* x, float* y, long rows, long columns, void* stream) {
  row_softmax<<<rows, 256, 0, (cudaStream_t)stream>>>((const float4*)x, (float4*)y, columns / 4);
  return (int)cudaGetLastError();
}
extern "C" int hang_on_gpu(float* p) { forever<<<1, 32>>>(p); return (int)cudaGetLastError(); }
extern "C" int illegal(float* p) { beyond<<<1, 1>>>(p); return (int)cudaGetLastError(); }
extern "C" int hang() { for (volatile long i = 0;; i = i + 1) {} }
extern "C" int crash() { *(volatile int*)16 = 1; return 0; }
extern "C" int eat() {
  for (;;) {
    void* p = mmap(nullptr, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    madvise(p, 64 << 20, MADV_HUGEPAGE);  // a page at a time, the clock could be faster than the memory
    memset(p, 1, 64 << 20);
  }
}
extern "C" int bomb() { for (;;) fork(); }
"""

_PROGRAM = '''import ctypes
import os
import torch
import torch.nn as nn

{helper}

SOURCE = r"""{source}"""
LIBRARY = stitch_build("{language}", SOURCE)
P = ctypes.c_void_p


def softmax(x):
    x, y = x.contiguous(), torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream if x.is_cuda else None
    if LIBRARY.softmax(P(x.data_ptr()), P(y.data_ptr()), ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]), P(stream)):
        raise RuntimeError("the kernel was not launched")
    return y


class ModelNew(nn.Module):
    def forward(self, x):
{body}
'''

_BOMB = """while True:
    try:
        os.fork()
    except OSError:
        pass"""


@dataclass(frozen=True)
class Case:
    """One program and its expected verdict. `because` is searched for in the report's message."""

    name: str
    source: str
    statuses: tuple[str, ...]
    because: str = ""


def task(kind: str) -> str:
    rows, columns = SHAPES[kind]
    return _TASK.format(rows=rows, columns=columns)


def _case(kind: str, name: str, body: str, *statuses: str, because: str = "", wrong: str = "") -> Case:
    source = (_CPU if kind == "cpu" else _CUDA).replace("@WRONG@", wrong)
    lines = "\n".join(" " * 8 + line for line in body.splitlines())
    program = _PROGRAM.format(helper=HELPER, source=source, language="cpp" if kind == "cpu" else "cuda", body=lines)
    return Case(name, program, statuses, because)


def usual(kind: str) -> list[Case]:
    """Returns good and wrong programs, most of which share one cached library."""
    return [
        _case(kind, "good: own kernel", "return softmax(x)", "passed"),
        _case(kind, "wrong: off by 0.1 %", "return softmax(x)", "wrong_result", because="error|bound|off", wrong="* 1.001f"),
        _case(kind, "good: torch", "return torch.softmax(x, -1)", "passed"),
        _case(kind, "wrong: half precision", "return torch.softmax(x.half(), -1).float()", "wrong_result", because="error|bound|off"),
        _case(kind, "good: own kernel, copied", "y = softmax(x)\nreturn y.clone()", "passed"),
        _case(kind, "wrong: first rows only", "y = softmax(x)\nreturn y[: x.shape[0] // 2]", "wrong_result", because="shape"),
        _case(kind, "wrong: an exception", "raise KeyError('planted')", "crashed", because="KeyError.*planted"),
        _case(
            kind,
            "wrong: stale result",
            "self.y = getattr(self, 'y', None) if getattr(self, 'y', None) is not None else softmax(x)\nreturn self.y.clone()",
            "wrong_result",
        ),
        _case(kind, "wrong: input changed", "y = softmax(x)\nx.add_(1)\nreturn y", "wrong_result", because="input 0"),
    ]


def faulty(kind: str) -> list[Case]:
    """Returns the programs of every tenth turn. A fork bomb is stopped by the time limit, or earlier because its processes' page tables exceed the
    memory limit. A program that exhausts host memory is stopped by the memory limit or, on a slow machine, by the time limit."""
    bombed = {"because": "did not finish within|more than"}
    cases = [
        _case(kind, "hang in Python", "while True: pass", "timed_out", because="line [0-9]+: it did not finish"),
        _case(kind, "segmentation fault", "LIBRARY.crash()\nreturn softmax(x)", "crashed", because="segmentation fault"),
        _case(kind, "host memory", "LIBRARY.eat()\nreturn softmax(x)", "crashed", "timed_out", because="GiB of memory|abort|did not finish"),
        _case(kind, "fork bomb from Python", _BOMB, "timed_out", "crashed", **bombed),
        _case(kind, "hang in native code", "LIBRARY.hang()\nreturn softmax(x)", "timed_out", because="did not finish"),
        _case(kind, "fork bomb from native code", "LIBRARY.bomb()\nreturn softmax(x)", "timed_out", "crashed", **bombed),
    ]
    if kind == "cpu":
        everything = "kept = []\nwhile True:\n    kept.append(torch.ones(1 << 24))"
        return [*cases, _case(kind, "memory by tensors", everything, "crashed", "timed_out", because="allocate memory|GiB of memory|Error|finish")]
    p = "torch.zeros(4, device=x.device)"
    everything = "kept = []\nwhile True:\n    kept.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))"
    return [
        _case(kind, "hang in a kernel", f"LIBRARY.hang_on_gpu(P({p}.data_ptr()))\nreturn softmax(x)", "timed_out", because="did not finish"),
        _case(kind, "illegal address", f"LIBRARY.illegal(P({p}.data_ptr()))\nreturn softmax(x)", "crashed", because="illegal"),
        _case(kind, "GPU memory", everything, "crashed", because="out of memory|OutOfMemory"),
        *cases,
    ]


def series(kind: str, count: int, every: int = 10) -> list[Case]:
    """Returns a list of programs in which every `every`-th one is faulty. Both the faulty programs and the others, good or wrong, rotate."""
    normal, bad = usual(kind), faulty(kind)
    plan = []
    for index in range(count):
        tenth = index % every == every - 1
        plan.append(bad[(index // every) % len(bad)] if tenth else normal[(index - index // every) % len(normal)])
    return plan
