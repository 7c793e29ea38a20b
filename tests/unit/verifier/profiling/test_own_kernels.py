import pytest

from verifier.profiling.own_kernels import OwnKernels, base_name, is_own, own_kernel_names, qualified

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


LIBRARY_SPOOF = """
SOURCE = r'''
namespace cutlass { template <typename T> __global__ void Kernel2(typename T::Params p) { } }
__global__ void dot_kernel(const float* a, float* b) { }
#define MAKE(op) __global__ void op##_fused(float* p) { }
MAKE(relu)
namespace ns { template <int N> __global__ void foo(const float4* x, float4* y, int n) { } }
'''
@triton.jit
def triton_(x): pass
@triton.jit
def triton_softmax(x): pass
"""
COMPILED = ("_Z10relu_fusedPf", "_ZN2ns3fooILi4EEEvPK6float4PS1_i", "_Z10dot_kernelPKfPf", "_ZN33_GLOBAL__N__2e402ad3_4_k_cu_plain4hereEPf")
SPOOF = OwnKernels.of(LIBRARY_SPOOF, COMPILED)


@pytest.mark.parametrize(
    ("kernel", "own"),
    [
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(cutlass_80_simt_sgemm_128x64_8x5_nn_align1::Params)", False),
        ("void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, cublasGemvTensor<float> > >(cublasDotParams<float>)", False),
        ("dot_kernel(float const*, float*)", True),
        ("relu_fused(float*)", True),  # made by a macro: known from the machine code
        ("void ns::foo<4>(float4 const*, float4*, int)", True),
        ("void other::foo<4>(float4 const*, Secret*, int)", False),
        ("(anonymous namespace)::here(float*)", True),
        ("triton_", False),  # torch.compile's name for a kernel if it is told not to make names unique
        ("triton_softmax", True),
        ("ampere_sgemm_128x64_nn", False),
    ],
)
def test_a_kernel_is_compared_by_its_whole_signature(kernel, own):
    assert SPOOF.owns(kernel) is own


def test_mangled_names_are_read():
    assert qualified("_ZN2nsL3fooILi4EEEvPK6float4PS1_i") == "ns::foo"
    assert qualified("_ZL4statPf") == "stat"
    assert qualified("plain") == "plain"
    assert OwnKernels.short("void ns::foo<4>(int)") == "foo"


def test_a_prebuilt_library_is_not_the_source():
    assert not OwnKernels.of("x = 1", ["_Z6secretPf"]).owns("secret(float*)")


def test_a_kernel_that_a_macro_names_by_its_argument_is_own():
    source = "SOURCE = r'''\n#define POINTWISE(NAME, E) __global__ void NAME(float* x) { *x = E; }\nPOINTWISE(left, 1.f)\n'''\n"
    assert OwnKernels.of(source, ("_Z4leftPf",)).owns("left(float*)")
    assert not OwnKernels.of(source, ("_Z4leftPf",)).owns("other(float*)")
    plain = source.replace("NAME(float", "named(float")
    assert not OwnKernels.of(plain, ("_Z4leftPf",)).owns("left(float*)")
