import pytest

from verifier.profiling.own_kernels import base_name, is_own, own_kernel_names

PROGRAM = '''
import triton

@triton.autotune(configs=[], key=[])
@triton.jit
def _fused(x): pass

def helper(): pass

SOURCE = r"""
template <typename T, int N>
__global__ void __launch_bounds__(256, 2) row_softmax(const T* x, T* y) { }
extern "C" __global__ __launch_bounds__(256) void plain(float* a, int n) { other<<<1, 2>>>(a); }
// __global__ void commented(int x)
static __global__ void
  two_lines(float* __restrict__ p) { }
__global__ void elementwise_kernel(float* p) { }
"""
'''
OWN = own_kernel_names(PROGRAM)


def test_names_are_read_from_the_source():
    assert sorted(OWN) == ["_fused", "elementwise_kernel", "plain", "row_softmax", "two_lines"]


@pytest.mark.parametrize(
    ("kernel", "own"),
    [
        ("void row_softmax<float, (int)4>(const T1 *, T1 *)", True),
        ("_Z11row_softmaxIfLi4EEvPKT_PS0_", True),
        ("void (anonymous namespace)::two_lines(float*)", True),
        ("plain", True),
        ("_fused", True),
        ("void ns::plain(float*, int)", True),
        ("other(float*)", False),
        ("void at::native::elementwise_kernel<128, 2, at::native::F>(int, F)", False),
        ("_ZN2at6native11row_softmaxEv", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8", False),
        ("triton_poi_fused_add_0", False),
        ("void not_row_softmax(float*)", False),
    ],
)
def test_a_kernel_is_own_by_its_qualified_name(kernel, own):
    assert is_own(kernel, OWN) is own


def test_base_name_drops_type_and_arguments():
    assert base_name("void at::native::<unnamed>::k<(int)4, std::array<char *, 2>>(int, T2)") == "at::native::k"
