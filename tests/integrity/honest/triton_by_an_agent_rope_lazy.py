# task: tasks/agents_triton_rope_lazy.py
# device: cuda
# precision: fp16
# call: 60
# says: as an agent writes it: cos and sin tables registered lazily as non-persistent buffers in forward and checked by version, one launch for q and k, tl.static_assert
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _rotate(base_in, base_out, cos, sin, HALF: tl.constexpr):
    i = tl.arange(0, HALF)
    a = tl.load(base_in + i).to(tl.float32)
    b = tl.load(base_in + HALF + i).to(tl.float32)
    tl.store(base_out + i, (a * cos - b * sin).to(base_out.dtype.element_ty))
    tl.store(base_out + HALF + i, (b * cos + a * sin).to(base_out.dtype.element_ty))


@triton.jit
def rope_qk_kernel(q, k, qo, ko, cos_ptr, sin_ptr, T, HQ, HK, HALF: tl.constexpr):
    tl.static_assert(HALF % 16 == 0, "the head dimension must be a multiple of 32")
    t = tl.program_id(0)
    b = tl.program_id(1)
    i = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + t * HALF + i).to(tl.float32)
    sin = tl.load(sin_ptr + t * HALF + i).to(tl.float32)
    for h in range(HQ):
        off = ((b * HQ + h) * T + t).to(tl.int64) * (2 * HALF)
        _rotate(q + off, qo + off, cos, sin, HALF)
    for h in range(HK):
        off = ((b * HK + h) * T + t).to(tl.int64) * (2 * HALF)
        _rotate(k + off, ko + off, cos, sin, HALF)


class ModelNew(nn.Module):
    def __init__(self, head_dim, base=10000.0):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / base ** (torch.arange(0, head_dim, 2).float() / head_dim))
        self._seen = None

    def _tables(self, length, dtype):
        seen = (length, dtype, self.inv_freq.data_ptr(), self.inv_freq._version)
        if self._seen != seen:
            angle = torch.outer(torch.arange(length, device=self.inv_freq.device, dtype=torch.float32), self.inv_freq)
            self.register_buffer("cos_cached", angle.cos().to(dtype), persistent=False)
            self.register_buffer("sin_cached", angle.sin().to(dtype), persistent=False)
            self._seen = seen
        return self.cos_cached, self.sin_cached

    def forward(self, q, k):
        B, HQ, T, D = q.shape
        HK = k.shape[1]
        q, k = q.contiguous(), k.contiguous()
        cos, sin = self._tables(T, q.dtype)
        qo, ko = torch.empty_like(q), torch.empty_like(k)
        rope_qk_kernel[(T, B)](q, k, qo, ko, cos, sin, T, HQ, HK, HALF=D // 2, num_warps=2)
        return qo, ko
