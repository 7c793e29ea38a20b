# task: tasks/agents_triton_groupnorm_tanh.py
# device: cuda
# call: 60
# says: as an agent writes it: one program a group with next_power_of_2, libdevice behind try/except ImportError, autotune of num_warps, heuristics, torch.backends flags read
import torch
import torch.nn as nn
import triton
import triton.language as tl

try:
    from triton.language.extra import libdevice
except ImportError:  # Triton before 3.0
    from triton.language.extra.cuda import libdevice

_TF32 = torch.backends.cuda.matmul.allow_tf32  # no product here; shown by the smoke test


@triton.autotune(
    configs=[triton.Config({}, num_warps=w) for w in (4, 8, 16)],
    key=["GROUP"],
)
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["GROUP"]), "EVEN": lambda args: triton.next_power_of_2(args["GROUP"]) == args["GROUP"]})
@triton.jit
def groupnorm_mish_kernel(x_ptr, w_ptr, b_ptr, y_ptr, GROUP, SPATIAL, CPG, G, eps, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    if EVEN:
        mask = tl.full((BLOCK,), True, tl.int1)
    else:
        mask = i < GROUP
    x = tl.load(x_ptr + pid * GROUP + i, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / GROUP
    c = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(c * c, axis=0) / GROUP + eps)
    channel = (pid % G) * CPG + i // SPATIAL
    z = c * rstd * tl.load(w_ptr + channel, mask=mask, other=0.0) + tl.load(b_ptr + channel, mask=mask, other=0.0)
    soft = tl.where(z > 20.0, z, libdevice.log1p(tl.exp(z)))
    tl.store(y_ptr + pid * GROUP + i, x + z * libdevice.tanh(soft), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = x.contiguous()
        B, C, *spatial = x.shape
        G = self.norm.num_groups
        size = x[0, 0].numel()
        y = torch.empty_like(x)
        groupnorm_mish_kernel[(B * G,)](x, self.norm.weight, self.norm.bias, y, C // G * size, size, C // G, G, self.norm.eps)
        return y
