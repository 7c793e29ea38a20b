# task: tasks/matmul.py
# device: cuda
# verdict: class custom
# call: 60
# says: Triton with num_stages=2 and exact fp32 products
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for at in range(0, k, K):
        left = tl.load(a + rows[:, None] * k + at + inner[None, :], mask=(rows[:, None] < m) & (at + inner[None, :] < k), other=0.0)
        right = tl.load(b + (at + inner[:, None]) * n + columns[None, :], mask=(at + inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        x = x.contiguous()
        m, (k, n) = x.shape[0], self.weight.shape
        y = x.new_empty(m, n)
        grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
        product[grid](x, self.weight, y, m, n, k, M=32, N=32, K=32, num_warps=4, num_stages=2)
        return y
