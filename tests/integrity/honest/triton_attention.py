# task: tasks/attention.py
# device: cuda
# verdict: class custom
# call: 60
# says: Triton's flash attention with a causal mask and exact fp32 products
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attend(q_ptr, k_ptr, v_ptr, y_ptr, length, scale, D: tl.constexpr, Q: tl.constexpr, K: tl.constexpr):
    base = tl.program_id(1) * length * D
    queries = tl.program_id(0) * Q + tl.arange(0, Q)
    features = tl.arange(0, D)
    q = tl.load(q_ptr + base + queries[:, None] * D + features[None, :], mask=queries[:, None] < length, other=0.0) * scale
    top = tl.full((Q,), -float("inf"), tl.float32)
    total = tl.zeros((Q,), tl.float32)
    out = tl.zeros((Q, D), tl.float32)
    for at in range(0, (tl.program_id(0) + 1) * Q, K):
        keys = at + tl.arange(0, K)
        k = tl.load(k_ptr + base + keys[:, None] * D + features[None, :], mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptr + base + keys[:, None] * D + features[None, :], mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        seen = (keys[None, :] <= queries[:, None]) & (keys[None, :] < length)
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        keep = tl.exp(top - higher)
        weights = tl.exp(scores - higher[:, None])
        total = total * keep + tl.sum(weights, 1)
        out = out * keep[:, None] + tl.dot(weights, v, input_precision="ieee")
        top = higher
    tl.store(y_ptr + base + queries[:, None] * D + features[None, :], out / total[:, None], mask=queries[:, None] < length)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = (t.contiguous() for t in (q, k, v))
        batch, heads, length, features = q.shape
        y = torch.empty_like(q)
        attend[(triton.cdiv(length, 32), batch * heads)](q, k, v, y, length, features**-0.5, D=features, Q=32, K=32)
        return y
