# task: tasks/gated_chain.py
# device: cuda
# verdict: class custom
# call: 60
# says: Triton with autotuning over block sizes, which happens in the first call
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 2048}, num_warps=8)],
    key=["elements"],
)
@triton.jit
def gated_chain(x, gate, shift, y, elements, alpha, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < elements
    a = tl.load(x + offsets, mask=inside)
    g = tl.load(gate + offsets, mask=inside)
    s = a + tl.load(shift)
    # tanh is computed from the exponential of a non-positive number, so that nothing overflows; the series keeps small arguments accurate
    e = tl.exp(-2.0 * tl.abs(s))
    large = (1.0 - e) / (1.0 + e)
    q = s * s
    small = tl.abs(s) * (1.0 + q * (-0.33333333333 + q * (0.13333333333 + q * (-0.05396825397 + q * 0.02186948854))))
    t = tl.where(tl.abs(s) < 0.1, small, large)
    t = tl.where(s < 0, -t, t)
    tl.store(y + offsets, t / (1.0 + tl.exp(-alpha * g)) + 0.5 * a, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x, gate):
        x, gate = x.contiguous(), gate.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        gated_chain[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, gate, self.shift, y, n, self.alpha)
        return y
