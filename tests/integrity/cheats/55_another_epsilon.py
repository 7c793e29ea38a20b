# hack: 55
# task: tasks/layer_norm.py
# device: any
# verdict: wrong_result
# because: elements are off|nan instead
# defence: runtime
# says: changes a hyperparameter: there is no epsilon under the square root
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=1e-12)

    def forward(self, x):
        return self.norm(x)
