# task: tasks/train_dropout_free.py
# device: any
# mode: train
# says: a load_state_dict hook puts everything under flat names, so the averages that a call updates have other names than the task's
import torch
import torch.nn as nn
import torch.nn.functional as F

NAMES = {
    "linear.weight": "weight",
    "linear.bias": "bias",
    "norm.weight": "gain",
    "norm.bias": "shift",
    "norm.running_mean": "mean",
    "norm.running_var": "variance",
    "norm.num_batches_tracked": "count",
}


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        layer = nn.Linear(features, features)
        self.weight, self.bias = layer.weight, layer.bias
        self.gain, self.shift = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))
        self.register_buffer("count", torch.tensor(0))
        self.register_load_state_dict_pre_hook(self.rename)

    @staticmethod
    def rename(module, state, prefix, *rest):
        for name, flat in NAMES.items():
            if prefix + name in state:
                state[prefix + flat] = state.pop(prefix + name)

    def forward(self, x):
        h = F.linear(x, self.weight, self.bias)
        if self.training:
            self.count.add_(1)
        return F.relu_(F.batch_norm(h, self.mean, self.variance, self.gain, self.shift, self.training, 0.1, 1e-5))
