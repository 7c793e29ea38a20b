# task: tasks/agents_depthwise_pybind_class.py
# device: cuda
# says: as an agent writes it: pybind class with state in the C++ source, no functions=; object kept in the module
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# The planner object lives on the C++ side: it owns the layer geometry and remembers the launch
# configuration for the last input shape, so Python only hands over tensors.
CPP = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <array>
#include <cstdint>

void depthwise3x3(const float* x, const float* w, const float* b, float* y, int planes, int channels, int h, int w_in, int ho, int wo, int stride,
                  cudaStream_t stream);

class DepthwiseConv {
 public:
  DepthwiseConv(int64_t channels, int64_t stride) : channels_(channels), stride_(stride) {
    TORCH_CHECK(stride == 1 || stride == 2, "stride must be 1 or 2");
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 4 && x.size(1) == channels_, "unexpected input");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous (NCHW)");
    if (shape_[0] != x.size(2) || shape_[1] != x.size(3)) {
      shape_ = {x.size(2), x.size(3)};
      out_ = {(x.size(2) - 1) / stride_ + 1, (x.size(3) - 1) / stride_ + 1};
    }
    auto y = at::empty({x.size(0), channels_, out_[0], out_[1]}, x.options());
    depthwise3x3(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), x.size(0) * channels_, channels_,
                 x.size(2), x.size(3), out_[0], out_[1], stride_, c10::cuda::getCurrentCUDAStream().stream());
    ++calls_;
    return y;
  }

  int64_t calls() const { return calls_; }

 private:
  int64_t channels_, stride_, calls_ = 0;
  std::array<int64_t, 2> shape_{-1, -1}, out_{0, 0};
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<DepthwiseConv>(m, "DepthwiseConv")
      .def(py::init<int64_t, int64_t>(), py::arg("channels"), py::arg("stride") = 1)
      .def("forward", &DepthwiseConv::forward, py::call_guard<py::gil_scoped_release>())
      .def("__call__", &DepthwiseConv::forward)
      .def_property_readonly("calls", &DepthwiseConv::calls);
}
"""

CUDA = r"""
#include <cuda_runtime.h>

template <int STRIDE>
__global__ void __launch_bounds__(256) dw3x3_kernel(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b,
                                                    float* __restrict__ y, int channels, int h, int w_in, int ho, int wo) {
    const int plane = blockIdx.y;
    const int c = plane % channels;
    float k[9];
    #pragma unroll
    for (int i = 0; i < 9; ++i) k[i] = __ldg(w + c * 9 + i);
    const float bias = __ldg(b + c);
    const float* src = x + (size_t)plane * h * w_in;
    float* dst = y + (size_t)plane * ho * wo;
    for (int p = blockIdx.x * blockDim.x + threadIdx.x; p < ho * wo; p += gridDim.x * blockDim.x) {
        const int oy = p / wo, ox = p % wo;
        float acc = bias;
        #pragma unroll
        for (int dy = 0; dy < 3; ++dy) {
            const int iy = oy * STRIDE + dy - 1;
            if (iy < 0 || iy >= h) continue;
            #pragma unroll
            for (int dx = 0; dx < 3; ++dx) {
                const int ix = ox * STRIDE + dx - 1;
                if (ix >= 0 && ix < w_in) acc = fmaf(__ldg(src + iy * w_in + ix), k[dy * 3 + dx], acc);
            }
        }
        // written so that a NaN stays a NaN
        dst[p] = acc < 0.f ? 0.f : (acc > 6.f ? 6.f : acc);
    }
}

void depthwise3x3(const float* x, const float* w, const float* b, float* y, int planes, int channels, int h, int w_in, int ho, int wo, int stride,
                  cudaStream_t stream) {
    dim3 grid((ho * wo + 1023) / 1024, planes);
    if (stride == 1)
        dw3x3_kernel<1><<<grid, 256, 0, stream>>>(x, w, b, y, channels, h, w_in, ho, wo);
    else
        dw3x3_kernel<2><<<grid, 256, 0, stream>>>(x, w, b, y, channels, h, w_in, ho, wo);
}
"""

dw_ext = load_inline(name="dw_conv_class", cpp_sources=[CPP], cuda_sources=[CUDA], extra_cuda_cflags=["-O3", "--use_fast_math"], verbose=True)


class ModelNew(nn.Module):
    def __init__(self, channels: int, stride: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, groups=channels, bias=True)
        self.op = dw_ext.DepthwiseConv(channels, stride)

    def forward(self, x):
        return self.op.forward(x.contiguous(), self.conv.weight.contiguous(), self.conv.bias)
