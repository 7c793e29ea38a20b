# task: tasks/linear.py
# device: any
# says: the weight is transposed when it is loaded, by a hook, and never afterwards
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.register_buffer("packed", torch.empty(features, features), persistent=False)
        self._pack()
        self.register_load_state_dict_post_hook(lambda module, _: module._pack())

    @torch.no_grad()
    def _pack(self):
        self.packed = self.linear.weight.detach().t().contiguous()

    def forward(self, x):
        return F.gelu(torch.addmm(self.linear.bias, x, self.packed.to(x)))
