"""Kernels that differ in a few sizes are printed once."""

import re

import pytest

from compiler import DeviceFigures
from compiler.program.launched import launches
from compiler.targets.cuda.merged import merged
from compiler.targets.cuda.windows import windowed
from tests.emulator import as_cpp

BLOCK = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(16 + 8 * n), nn.ReLU(), nn.Conv2d(16 + 8 * n, 8, 3, padding=1, bias=False)) for n in range(4)
        )

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def get_inputs():
    return [torch.rand(2, 16, 12, 12)]


def get_init_inputs():
    return []
"""


def two(first: str, second: str | None = None, launch: str = "{name}<<<3, 64, 0, (cudaStream_t)stream>>>(x, out);") -> str:
    """Two launchers with a kernel each, of these bodies."""
    parts = []
    for number, body in ((1, first), (2, second if second is not None else first)):
        name = f"scale_{number}_kernel"
        parts.append(
            f"// scale {number}\n__global__ void __launch_bounds__(64) {name}(const float* x, float* out) {{\n{body}\n}}\n"
            f'extern "C" int scale_{number}(const float* x, float* out, void* stream) {{\n    {launch.format(name=name)}\n    return 0;\n}}\n'
        )
    return "\n".join(parts)


def kernels(text: str) -> list[str]:
    return re.findall(r"__global__.* (\w+)\(", text)


def test_a_dense_block_has_one_kernel_for_each_kind(compiled):
    found = compiled("import torch\nimport torch.nn as nn\n" + BLOCK, figures=DeviceFigures.h200())
    launchers = re.findall(r'extern "C" int (\w+)', found.text)
    norms = [name for name in launchers if name.startswith("batch_norm")]
    assert len(norms) == 4 and len([name for name in kernels(found.text) if name.startswith("batch_norm")]) == 1
    assert "batch norm, ReLU (4 times): 2 operator(s) over 16 to 40 rows of 288 elements" in found.text
    found.text = as_cpp(found.text)
    found.check()


def test_factors_terms_and_bounds_become_parameters():
    body = "    const int at = blockIdx.x * {0} + threadIdx.x;\n    if (at < {1}) out[at] = x[at + {2}] * 2.0f;"
    text = merged(two(body.format(64, 150, 7), body.format(128, 300, 9)))
    assert kernels(text) == ["scale_1_kernel"]
    assert "(const float* x, float* out, const int x_stride, const int at_end, const int shift) {" in text
    assert "scale_1_kernel<<<3, 64, 0, (cudaStream_t)stream>>>(x, out, 64, 150, 7);" in text
    assert "scale_1_kernel<<<3, 64, 0, (cudaStream_t)stream>>>(x, out, 128, 300, 9);" in text
    assert "// scale 2\nextern" in text.replace("\n\n", "\n")


def test_parameters_are_named_by_what_they_do():
    body = "    const int left = {0} - threadIdx.x;\n    if (threadIdx.x >= {1}) return;\n    out[threadIdx.x] = x[left];"
    assert "const int count, const int x_end) {" in merged(two(body.format(10, 40), body.format(20, 50)))


def test_one_value_in_several_places_is_one_parameter_and_names_are_free():
    body = "    const int z_stride = 1;\n    const long z = 1;\n    out[z * {0}] = x[z * {0} + z_stride];"
    text = merged(two(body.format(10), body.format(20)))
    assert "const int z_stride_2) {" in text and "out[z * z_stride_2] = x[z * z_stride_2 + z_stride];" in text


@pytest.mark.parametrize(
    "body",
    [
        "    out[threadIdx.x / {0}] = x[0];",
        "    out[threadIdx.x % {0}] = x[0];",
        "    out[0] = x[0] * {0}.0f;",
        "    out[0] = x[0] * {0}u;",
        "    float held[2 * {0}];",
        "    __shared__ float held[4][1 + {0}];",
        "    out[0] = total<Sum, 2 * {0}>(x[0]);",
        "#pragma unroll\n    for (int part = 0; part < {0}; ++part) out[part] = x[part];",
        "    for (int k = 0; k < {0}; ++k) out[k] = x[k];",
        "#pragma unroll 2 * {0}",
        '    asm("mma {{%0 + {0}}}" : : "f"(x[0] * {0}));',
        "    out[0] = x[3000000000 + threadIdx.x * {0}000000000];",
    ],
)
def test_what_the_compiler_must_know_stays(body):
    text = two(body.format(4), body.format(8))
    assert merged(text) == text


def test_kernels_that_a_launcher_names_otherwise_stay():
    body = "    out[threadIdx.x * {0}] = x[0];"
    text = two(body.format(4), body.format(8), "cudaLaunchKernelEx(&config, {name}, x, out);")
    assert merged(text) == text


def test_kernels_of_other_names_stay():
    body = "    out[threadIdx.x * {0}] = x[0];"
    text = two(body.format(4), body.format(8)).replace("scale_2", "shift_2")
    assert merged(text) == text


def test_convolutions_of_16_bits_that_differ_by_their_window_are_one_template(compiled):
    found = compiled("import torch\nimport torch.nn as nn\n" + BLOCK, figures=DeviceFigures.h200(), precision="bf16")
    assert len(re.findall(r"^struct \w+_window \{", found.text, re.M)) == 4
    templates = re.findall(r"template <class Window[^>]*>\n__global__ [^\n]* (\w+)\(", found.text)
    convolutions = [name for name in kernels(found.text) if "convolution" in name and name.endswith("_kernel")]
    assert templates and set(templates) <= set(convolutions) and len(convolutions) < 4
    assert found.text.count("The image with its channels innermost") == len([name for name in kernels(found.text) if name.endswith("_turn")])
    found.text = as_cpp(found.text)
    found.check()


def windows(*bodies: str, depths: tuple[int, ...] = (96, 128)) -> str:
    parts = []
    for number, (body, depth) in enumerate(zip(bodies, depths, strict=True), 1):
        parts.append(
            f"// conv {number}\nstruct conv_{number}_window {{\n    static constexpr int LINES = 7, DEPTH = {depth};\n}};\n"
            f"__global__ void conv_{number}_kernel(float* out) {{\n{body.format(depth=depth, steps=depth // 32, name=f'conv_{number}')}\n}}\n"
            f'extern "C" int conv_{number}(float* out, void* stream) {{\n    allow(conv_{number}_kernel, 9);\n'
            f"    conv_{number}_kernel<<<3, 64, 0, (cudaStream_t)stream>>>(out);\n    return 0;\n}}\n"
        )
    return "\n".join(parts)


def test_sizes_of_a_window_are_read_from_it_and_others_are_parameters_of_the_template():
    body = "    const Gathered<{name}_window> gathered;\n    float held[{depth}];\n"
    body += "    tile.run(stages, {steps}, held);\n    if ({steps} < 9) out[7] = {depth};"
    text = windowed(windows(body, body))
    assert "template <class Window, int STEPS>\n__global__ void conv_1_kernel(float* out) {\n    const Gathered<Window> gathered;\n" in text
    assert "float held[Window::DEPTH];\n    tile.run(stages, STEPS, held);\n    if (STEPS < 9) out[7] = Window::DEPTH;\n}" in text
    assert "allow(conv_1_kernel<conv_1_window, 3>, 9);\n    conv_1_kernel<conv_1_window, 3><<<3, 64" in text
    assert "allow(conv_1_kernel<conv_2_window, 4>, 9);\n    conv_1_kernel<conv_2_window, 4><<<3, 64" in text
    assert "conv_2_kernel" not in text and text.count("struct conv_") == 2 and windowed(text) == text
    assert [launch.kernels for launch in launches(text + "\nclass ModelNew:\n    kernels.conv_1(\n    kernels.conv_2(\n")] == [
        ("conv_1_kernel<conv_1_window, 3>",), ("conv_1_kernel<conv_2_window, 4>",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("    Gathered<{name}_window> g;\n    out[0] = {steps};", "    Gathered<{name}_window> g;\n    out[1] = {steps} + 1;"),
        ('    Gathered<{name}_window> g;\n    asm("mma {steps}");', '    Gathered<{name}_window> g;\n    asm("mma {steps}");'),
        ("    Gathered<{name}_window> g;\n#pragma unroll {steps}", "    Gathered<{name}_window> g;\n#pragma unroll {steps}"),
        ("    out[0] = {steps};", "    out[0] = {steps};"),
    ],
)
def test_windows_of_other_kernels_and_what_is_no_matter_of_templates_stay(first, second):
    text = windows(first, second)
    assert windowed(text) == text
