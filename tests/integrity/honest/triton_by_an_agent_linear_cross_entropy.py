# task: tasks/agents_triton_linear_cross_entropy.py
# device: cuda
# call: 60
# says: as an agent writes it: autograd.Function with a Triton backward, cuBLAS product, logging.basicConfig
"""Liger-style fused cross entropy: the logits are overwritten by their gradient only when a gradient is needed."""
import logging

import torch
import torch.nn as nn
import triton
import triton.language as tl

logging.basicConfig(level=logging.WARNING)
_LOG = logging.getLogger(__name__)


@triton.jit
def _ce_forward(x_ptr, t_ptr, loss_ptr, lse_ptr, stride, V, smoothing, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    target = tl.load(t_ptr + row)
    m = float("-inf")
    d = 0.0
    total = 0.0
    for i in range(0, V, BLOCK):
        offs = i + tl.arange(0, BLOCK)
        mask = offs < V
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        total += tl.sum(tl.where(mask, x, 0.0))
        m_new = tl.maximum(m, tl.max(x))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    lse = m + tl.log(d)
    xt = tl.load(x_ptr + target)
    loss = (1.0 - smoothing) * (lse - xt) + smoothing * (lse - total / V)
    tl.store(loss_ptr + row, loss)
    tl.store(lse_ptr + row, lse)


@triton.jit
def _ce_backward(x_ptr, t_ptr, lse_ptr, g_ptr, stride, V, smoothing, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < V
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    p = tl.exp(x - tl.load(lse_ptr + row))
    hot = tl.where(offs == tl.load(t_ptr + row), 1.0 - smoothing, 0.0)
    tl.store(x_ptr + offs, (p - hot - smoothing / V) * tl.load(g_ptr + row), mask=mask)


class FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, smoothing):
        rows, vocab = logits.shape
        loss = torch.empty(rows, device=logits.device, dtype=torch.float32)
        lse = torch.empty_like(loss)
        _ce_forward[(rows,)](logits, targets, loss, lse, logits.stride(0), vocab, smoothing, BLOCK=4096, num_warps=8)
        ctx.save_for_backward(logits, targets, lse)
        ctx.smoothing = smoothing
        return loss

    @staticmethod
    def backward(ctx, grad_loss):
        logits, targets, lse = ctx.saved_tensors
        grad = logits.clone()
        rows, vocab = grad.shape
        _ce_backward[(rows, triton.cdiv(vocab, 4096))](grad, targets, lse, grad_loss.contiguous(), grad.stride(0), vocab, ctx.smoothing, BLOCK=4096, num_warps=8)
        return grad, None, None


class ModelNew(nn.Module):
    def __init__(self, hidden, vocab, label_smoothing=0.1):
        super().__init__()
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.label_smoothing = label_smoothing

    def forward(self, h, targets):
        logits = self.head(h)
        return FusedCrossEntropy.apply(logits, targets, self.label_smoothing)
