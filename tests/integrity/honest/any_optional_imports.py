# task: tasks/log_loss.py
# device: any
# says: try/except around imports, with the same arithmetic either way
import contextlib

import torch
import torch.nn as nn

try:
    import triton  # noqa: F401

    HAS_TRITON = True
except ImportError:
    HAS_TRITON = False

with contextlib.suppress(ImportError):
    import einops  # noqa: F401

try:
    from torch.nn.functional import cross_entropy
except ImportError:  # a version of PyTorch that does not have this name yet
    cross_entropy = None


class ModelNew(nn.Module):
    def forward(self, logits, classes):
        if cross_entropy is not None:
            loss = cross_entropy(logits, classes, reduction="none")
        else:
            loss = -torch.log_softmax(logits, dim=-1).gather(1, classes[:, None])[:, 0]
        return loss, logits.max(dim=-1).indices == classes
