"""A kernel's time is attributed to its group: launches in the program's text follow the order of the groups, regardless of the kernels' names."""

import pytest

from compiler import DeviceFigures, Options
from compiler.planning.cost import times
from compiler.program.launched import Launch, launches
from tests.unit.compiler.test_moves import report
from verifier.report import ObservedKernel

H200 = DeviceFigures.h200()


def seen(**ms: float) -> list[ObservedKernel]:
    return [ObservedKernel(name=f"{name}(float const*, float*)", calls=1, ms=value, share=0.1, own=True) for name, value in ms.items()]


@pytest.fixture
def three_softmaxes(compiled, task):
    """Returns a task in which three sizes give three kernels with the same text."""
    body = "return F.softmax(x, -1), F.softmax(y, -1), F.softmax(z, -1)"
    inputs = "torch.randn(64, 512), torch.randn(64, 2048), torch.randn(64, 8192)"
    return compiled(task(body, inputs, arguments="x, y, z"), figures=H200)


def test_kernels_of_the_same_words_are_told_apart_by_the_launches(three_softmaxes):
    found = three_softmaxes
    started = launches(found.text)
    assert [launch.name for launch in started] == ["softmax", "softmax_2", "softmax_3"]
    first, second, third = (launch.kernels[0] for launch in started)
    ids = [group.id for group in found.plan.own]
    taken = times(found.plan, Options(), report(1.0, 2.0, seen(**{first: 0.5, second: 0.2, third: 0.1})), None, found.text)
    assert taken == dict(zip(ids, (0.5, 0.2, 0.1), strict=True)), "not by their bytes"


def test_a_kernel_that_several_run_and_names_alone_are_shared_out_by_the_model(three_softmaxes):
    found = three_softmaxes
    floors = [group.floor_ms for group in found.plan.own]
    expected = {group.id: pytest.approx(0.6 * group.floor_ms / sum(floors)) for group in found.plan.own}
    observed = report(1.0, 2.0, seen(softmax_kernel=0.6))
    one = found.text.replace("softmax_2_kernel", "softmax_kernel").replace("softmax_3_kernel", "softmax_kernel")
    assert times(found.plan, Options(), observed, None, one) == expected
    assert times(found.plan, Options(), observed, None) == expected


def test_instances_of_a_template_are_told_apart_by_their_types(three_softmaxes):
    found, text = three_softmaxes, three_softmaxes.text
    for name, window in (("softmax", "a"), ("softmax_2", "b"), ("softmax_3", "c")):
        text = text.replace(f"{name}_kernel<<<", f"softmax_kernel<{window}_window, 9><<<")
    names = {f"void softmax_kernel<{window}_window, (int)9>(float const*)": ms for window, ms in (("a", 0.5), ("b", 0.2), ("c", 0.1))}
    kernels = [ObservedKernel(name=name, calls=1, ms=ms, share=0.1, own=True) for name, ms in names.items()]
    taken = times(found.plan, Options(), report(1.0, 2.0, kernels), None, text)
    assert list(taken.values()) == [0.5, 0.2, 0.1]


def test_a_group_that_is_not_launched_leaves_the_others_to_names(three_softmaxes):
    found = three_softmaxes
    without = found.text.replace("kernels.softmax_2(", "nothing(")
    assert len(launches(without)) == 2
    taken = times(found.plan, Options(), report(1.0, 2.0, seen(softmax_kernel=0.6)), None, without)
    assert sum(taken.values()) == pytest.approx(0.6) and len(taken) == 3


def test_a_launch_starts_what_its_launcher_says():
    source = """
__global__ void linear_kernel(float* x) {}
extern "C" int linear(float* x, void* stream) {
    linear_kernel<<<4, 128, 0, (cudaStream_t)stream>>>(x);
    linear_finish<4><<<1, 256, 0, (cudaStream_t)stream>>>(x);
}
extern "C" int gru(float* x, void* stream) {
    return (int)cudaLaunchCooperativeKernel(gru_kernel, dim3(4), dim3(128), given, shared, (cudaStream_t)stream);
}
def launch_softmax(x, out):
    softmax_kernel[(4,)](x, out)

class ModelNew(nn.Module):
    def forward(self, x):
        check(kernels.gru(x.data_ptr(), stream))
        check(kernels.linear(x.data_ptr(), stream))
        launch_softmax(x, out)
        kernels.plain(x.data_ptr())
"""
    assert launches(source) == [
        Launch("gru", ("gru_kernel",)), Launch("linear", ("linear_kernel", "linear_finish<4>")), Launch("softmax", ("softmax_kernel",)),
        Launch("plain", ("plain",)),
    ]  # fmt: skip
    assert launches("def forward(): pass") == []
