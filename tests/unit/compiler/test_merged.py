"""Kernels that differ in a few sizes are printed once."""

import re
from collections.abc import Callable

import pytest

from compiler import DeviceFigures, Options
from compiler.kernel.text import (
    HOLE,
    WINDOW,
    KernelText,
    Launch,
    Launcher,
    Part,
    Window,
    below,
    beyond,
    free,
    known,
    named,
    plain,
    shift,
    text_of,
    times,
)
from compiler.program.launched import launches
from compiler.targets.cuda import printing
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


def two(first: list[str], second: list[str] | None = None, launched: bool = True) -> list[Part]:
    """Returns two launchers with one kernel each, with these bodies. `launched`: whether the statement that launches them allows one kernel to
    replace another."""
    parts: list[Part] = []
    for number, body in ((1, first), (2, second if second is not None else first)):
        name = f"scale_{number}"
        kernel = KernelText.of(name, "kernel", "__launch_bounds__(64) ", "const float* x, float* out", body)
        launch = Launch(kernel.name, "3", 64, "x, out") if launched else f"cudaLaunchKernelEx(&config, {kernel.name}, x, out);"
        parts += [f"// scale {number}\n", kernel, Launcher(name, "const float* x, float* out, void* stream", (launch,)), "\n"]
    return parts


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
    def body(threads: int, size: int, first: int) -> list[str]:
        return [
            f"    const int at = {times('blockIdx.x', threads)} + threadIdx.x;",
            f"    if ({below('at', size)}) out[at] = x[at + {shift(first)}] * 2.0f;",
        ]

    text = text_of(merged(two(body(64, 150, 7), body(128, 300, 9))))
    assert kernels(text) == ["scale_1_kernel"]
    assert "(const float* x, float* out, const int x_stride, const int at_end, const int shift) {" in text
    assert "const int at = blockIdx.x * x_stride + threadIdx.x;\n    if (at < at_end) out[at] = x[at + shift] * 2.0f;" in text
    assert "scale_1_kernel<<<3, 64, 0, (cudaStream_t)stream>>>(x, out, 64, 150, 7);" in text
    assert "scale_1_kernel<<<3, 64, 0, (cudaStream_t)stream>>>(x, out, 128, 300, 9);" in text
    assert "// scale 2\nextern" in text


def test_parameters_are_named_by_what_they_do():
    def body(left: int, size: int) -> list[str]:
        return [
            f"    const int left = {free(left, 'count')} - threadIdx.x;",
            f"    if ({beyond('threadIdx.x', size)}) return;",
            "    out[0] = x[left];",
        ]

    assert "const int count, const int x_end) {" in text_of(merged(two(body(10, 40), body(20, 50))))


def test_one_value_in_several_places_is_one_parameter_and_names_are_free():
    def body(size: int) -> list[str]:
        return ["    const int z_stride = 1;", "    const long z = 1;", f"    out[{times('z', size)}] = x[{times('z', size)} + z_stride];"]

    text = text_of(merged(two(body(10), body(20))))
    assert "const int z_stride_2) {" in text and "out[z * z_stride_2] = x[z * z_stride_2 + z_stride];" in text


@pytest.mark.parametrize(
    "body",
    [
        lambda size: [f"    out[threadIdx.x / {known(size)}] = x[0];"],
        lambda size: [f"    out[threadIdx.x / {size}] = x[0];"],
        lambda size: [f"    out[{times('threadIdx.x', size * 500_000_000)}] = x[3000000000];"],
        lambda size: [f"    out[threadIdx.x * {free(size, 'stride')}] = x[{known(size)}];"],
    ],
)
def test_what_is_not_free_stays(body):
    parts = two(body(5), body(8))
    assert merged(parts) == parts


NETWORK = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 48, 3, padding=1)
        self.norm = nn.BatchNorm2d(48)
        self.apart = nn.Conv2d(48, 48, 3, padding=1, groups=48)
        self.grouped = nn.Conv2d(48, 64, 3, stride=2, groups=2)
        self.wide = nn.Conv2d(64, 64, 3, padding=1)
        self.up = nn.ConvTranspose2d(48, 36, 3, stride=2, padding=1, output_padding=1)
        self.rows = nn.LayerNorm(100)
        self.linear = nn.Linear(100, 1000)

    def forward(self, x, heads):
        x = self.apart(F.relu(self.norm(self.first(x[:, 2:]))))
        y = self.wide(self.grouped(x[1:]))
        z = self.rows(F.adaptive_avg_pool2d(self.up(F.max_pool2d(x, 3, 2, 1)), (10, 10)).flatten(2))
        sums = torch.cumsum(heads.float(), 3), torch.cumsum(heads.float(), 1)
        heads = torch.softmax(heads @ heads.transpose(2, 3) * 0.125, -1) @ heads
        return y, torch.softmax(self.linear(z), -1), torch.argmax(z, 1), z.mean((0, 2)), heads, sums


def get_inputs():
    return [torch.rand(3, 5, 132, 134), torch.rand(2, 4, 1030, 64)]


def get_init_inputs():
    return []
"""
CONSTANT = (
    r"[/%] ?$",
    r"\w<[^<>;()]*$",
    r"^#",
    r"^ *(?:for|while) \([^;]*;(?:[^()]|\([^()]*\))*$",
    r"\basm\b",
    r"^ *(?:alignas\(\d+\) |__shared__ |const )*[a-z]\w* \w+\[[^=]*$",
)


@pytest.mark.parametrize("precision", ["fp32-strict", "bf16"])
@pytest.mark.parametrize("knobs", [{}, {"split": 2, "groups": 4, "row-blocks": 4, "work": 2}])
def test_what_the_compiler_must_know_is_never_free(compiled, monkeypatch, precision, knobs):
    """Covers divisors, template arguments, pragmas, loop ends and steps, instructions, and array lengths."""
    seen: list[Part] = []
    monkeypatch.setattr(printing, "merged", lambda parts: seen.extend(parts) or merged(parts))
    source = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n" + NETWORK
    plan = compiled(source, figures=DeviceFigures.h200(), precision=precision, options=Options(knobs=knobs)).plan
    convolutions = {"half-conv"} if precision == "bf16" else {"conv"}
    assert {group.family for group in plan.own} >= {"", "pool", "depthwise", "attention", "scan", *convolutions}
    found = [part for part in seen if isinstance(part, KernelText)]
    assert len(found) > 8 and sum(bool(size.name) for kernel in found for size in kernel.sizes) > 40
    for kernel in found:
        before = ""
        for piece, size in zip(kernel.template.split(HOLE), kernel.sizes, strict=False):
            before += piece
            line = before[before.rfind("\n") + 1 :]
            of_parts = re.match(r" *for \(int part = 0; ", line) and not before[: -len(line)].endswith("#pragma unroll\n")
            if size.name and not of_parts:  # partial sums of several blocks are added in a loop whose end may vary
                assert not any(re.search(pattern, line) for pattern in CONSTANT), (line, size)
            before += size.value


def test_kernels_that_a_launcher_starts_otherwise_stay():
    parts = two([f"    out[{times('threadIdx.x', 4)}] = x[0];"], [f"    out[{times('threadIdx.x', 8)}] = x[0];"], launched=False)
    assert merged(parts) == parts


def test_kernels_of_other_names_stay():
    parts = two([f"    out[{times('threadIdx.x', 4)}] = x[0];"], [f"    out[{times('threadIdx.x', 8)}] = x[0];"])
    parts = [*parts[:4], *named(parts[4:], "scale_2", "shift_2")]
    assert merged(parts) == parts


def test_marks_are_dropped_where_nobody_has_use_for_them():
    assert plain(f"x[{times('i', 12)} + {known(-3)}] < {known(True)}") == "x[i * 12 + -3] < true"
    assert text_of(two([f"    out[{times('i', 4)}] = {known(7)};"])[1:2]).endswith(" {\n    out[i * 4] = 7;\n}\n")


def test_convolutions_of_16_bits_that_differ_by_their_window_are_one_template(compiled):
    found = compiled("import torch\nimport torch.nn as nn\n" + BLOCK, figures=DeviceFigures.h200(), precision="bf16")
    assert len(re.findall(r"^struct \w+_window \{", found.text, re.M)) == 4
    templates = re.findall(r"template <class Window[^>]*>\n__global__ [^\n]* (\w+)\(", found.text)
    convolutions = [name for name in kernels(found.text) if "convolution" in name and name.endswith("_kernel")]
    assert templates and set(templates) <= set(convolutions) and len(convolutions) < 4
    assert found.text.count("The image with its channels innermost") == len([name for name in kernels(found.text) if name.endswith("_turn")])
    found.text = as_cpp(found.text)
    found.check()


def windows(*bodies: Callable[[int, int], list[str]], depths: tuple[int, ...] = (96, 128), window: bool = True) -> list[Part]:
    """Returns kernels with these bodies, which take a depth and its number of steps."""
    parts: list[Part] = []
    for number, (body, depth) in enumerate(zip(bodies, depths, strict=True), 1):
        name = f"conv_{number}"
        own = Window(f"{name}_window", (("LINES", 7), ("DEPTH", depth)))
        kernel = KernelText.of(name, "kernel", "", "float* out", body(depth, depth // 32), window=own if window else None)
        launch = Launch(kernel.name, "3", 64, "out", shared=9, asks=True)
        parts += [f"// conv {number}\n", own.text(), kernel, Launcher(name, "float* out, void* stream", (launch,)), "\n"]
    return parts


def test_sizes_of_a_window_are_read_from_it_and_others_are_parameters_of_the_template():
    def body(depth: int, steps: int) -> list[str]:
        return [
            f"    const Gathered<{WINDOW}> gathered;",
            f"    float held[{known(depth)}];",
            f"    tile.run(stages, {known(steps, 'STEPS')}, held);",
            f"    if ({known(steps)} < 9) out[7] = {known(depth)};",
        ]

    parts = windowed(windows(body, body))
    text = text_of(parts)
    assert "template <class Window, int STEPS>\n__global__ void conv_1_kernel(float* out) {\n    const Gathered<Window> gathered;\n" in text
    assert "float held[Window::DEPTH];\n    tile.run(stages, STEPS, held);\n    if (STEPS < 9) out[7] = Window::DEPTH;\n}" in text
    for number, steps in ((1, 3), (2, 4)):
        instance = f"conv_1_kernel<conv_{number}_window, {steps}>"
        assert f"cudaFuncSetAttribute({instance}, cudaFuncAttributeMaxDynamicSharedMemorySize, 9);\n    {instance}<<<3, 64" in text
    assert "conv_2_kernel" not in text and text.count("struct conv_") == 2 and windowed(parts) == parts
    assert [launch.kernels for launch in launches(text + "\nclass ModelNew:\n    kernels.conv_1(\n    kernels.conv_2(\n")] == [
        ("conv_1_kernel<conv_1_window, 3>",), ("conv_1_kernel<conv_2_window, 4>",),
    ]  # fmt: skip


GATHERED = f"    Gathered<{WINDOW}> g;"


@pytest.mark.parametrize(
    ("first", "second", "window"),
    [
        (lambda _, steps: [GATHERED, f"    out[0] = {known(steps)};"], lambda _, steps: [GATHERED, f"    out[1] = {known(steps)} + 1;"], True),
        (lambda _, steps: [GATHERED, f'    asm("mma {steps}");'], lambda _, steps: [GATHERED, f'    asm("mma {steps}");'], True),
        (lambda _, steps: [GATHERED, f"#pragma unroll {steps}"], lambda _, steps: [GATHERED, f"#pragma unroll {steps}"], True),
        (lambda _, steps: [f"    out[0] = {known(steps)};"], lambda _, steps: [f"    out[0] = {known(steps)};"], False),
    ],
)
def test_windows_of_other_kernels_and_what_is_no_matter_of_templates_stay(first, second, window):
    parts = windows(first, second, window=window)
    assert windowed(parts) == parts


def test_kernels_of_windows_are_no_kernels_that_take_sizes():
    body = [lambda depth, _: [GATHERED, f"    out[{times('threadIdx.x', depth)}] = 0;"]] * 2
    assert merged(windows(*body)) == windows(*body)
