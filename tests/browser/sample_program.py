"""The sources of the sample run: a task, and programs with different loop bodies."""

from __future__ import annotations

TASK = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Softmax over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.rand(1024, 8192) * 8 - 4]


def get_init_inputs():
    return []
'''

PROGRAM = '''import torch
import torch.nn as nn

# One row a thread: {note}
SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void softmax_rows(const float* x, float* y, int64_t rows, int64_t n) {{
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; ++row) {{
        const float* in = x + row * n;
        float* out = y + row * n;
        float largest = in[0];
        for (int64_t i = 1; i < n; ++i) largest = in[i] > largest ? in[i] : largest;
        float total = 0.0f;
{body}
        const float scale = 1.0f / total;
        for (int64_t i = 0; i < n; ++i) out[i] *= scale;
    }}
}}
"""


def stitch_build(source):
    return source


class ModelNew(nn.Module):
    """Softmax over the last dimension, in one kernel."""

    def __init__(self):
        super().__init__()
        self.kernel = stitch_build(SOURCE)

{padding}
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        self.kernel.softmax_rows(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
'''

BODIES = [
    ("three passes", "        for (int64_t i = 0; i < n; ++i) { out[i] = std::exp(in[i]); total += out[i]; }"),
    ("subtract the largest", "        for (int64_t i = 0; i < n; ++i) { out[i] = std::exp(in[i] - largest); total += out[i]; }"),
    (
        "vector exp",
        "#pragma omp simd reduction(+ : total)\n        for (int64_t i = 0; i < n; ++i) { out[i] = expf(in[i] - largest); total += out[i]; }",
    ),
    (
        "vector exp, two accumulators",
        "        float other = 0.0f;\n#pragma omp simd reduction(+ : total, other)\n        for (int64_t i = 0; i < n; i += 2) {\n"
        "            out[i] = expf(in[i] - largest); total += out[i];\n            out[i + 1] = expf(in[i + 1] - largest); other += out[i + 1];\n"
        "        }\n        total += other;",
    ),
]


def program(index: int) -> str:
    note, body = BODIES[index % len(BODIES)]
    padding = "\n".join(f"    # padding line {i}: unchanged between candidates" for i in range(24))
    return PROGRAM.format(note=note, body=body, padding=padding)
