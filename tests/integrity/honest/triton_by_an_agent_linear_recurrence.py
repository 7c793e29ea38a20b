# task: tasks/agents_triton_linear_recurrence.py
# device: cuda
# call: 60
# says: as an agent writes it: associative_scan over tuples; reference is a loop; self-test
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def combine(a_l, b_l, a_r, b_r):
    return a_l * a_r, b_l * a_r + b_r


@triton.jit
def recurrence_kernel(gate_ptr, b_ptr, h0_ptr, out_ptr, T, D, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    d = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    dm = d < D
    carry = tl.load(h0_ptr + d, mask=dm, other=0.0)
    base = batch * T * D
    for t0 in range(0, T, BLOCK_T):
        t = t0 + tl.arange(0, BLOCK_T)
        mask = (t[:, None] < T) & dm[None, :]
        off = base + t[:, None].to(tl.int64) * D + d[None, :]
        a = tl.sigmoid(tl.load(gate_ptr + off, mask=mask, other=0.0))
        b = tl.load(b_ptr + off, mask=mask, other=0.0)
        pa, pb = tl.associative_scan((a, b), axis=0, combine_fn=combine)
        h = pa * carry[None, :] + pb
        tl.store(out_ptr + off, h, mask=mask)
        last = (tl.arange(0, BLOCK_T) == BLOCK_T - 1)[:, None]
        carry = tl.sum(tl.where(last, h, 0.0), axis=0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.h0 = nn.Parameter(torch.randn(dim))

    def forward(self, gate, b):
        assert gate.is_cuda and gate.shape == b.shape
        B, T, D = b.shape
        out = torch.empty_like(b, memory_format=torch.contiguous_format)
        recurrence_kernel[(triton.cdiv(D, 32), B)](gate.contiguous(), b.contiguous(), self.h0, out, T, D, BLOCK_T=32, BLOCK_D=32, num_warps=4)
        return out


if __name__ == "__main__":
    import time

    m = ModelNew(2048).cuda()
    x = torch.randn(16, 128, 2048, device="cuda")
    for _ in range(3):
        m(x, x)
    torch.cuda.synchronize()
    t0 = time.time()
    for _ in range(100):
        m(x, x)
    torch.cuda.synchronize()
    print(f"{(time.time() - t0) * 10:.3f} ms")
