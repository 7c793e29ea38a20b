# hack: 26
# task: tasks/step_in_place.py
# device: any
# verdict: wrong_result
# because: timed call \d+: input 0
# defence: runtime
# says: updates only half of the weights once it has been called forty times
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, weights, momentum, gradient):
        self.calls += 1
        momentum.mul_(0.9).add_(gradient)
        moved = len(weights) if self.calls <= 40 else len(weights) // 2
        weights[:moved].sub_(momentum[:moved], alpha=0.1)
        return momentum.square().mean()
