# hack: 65
# task: tasks/softmax.py
# device: any
# verdict: wrong_result
# because: elements are off|instead of
# defence: design
# says: draws the inputs again from the generator's current state instead of reading them, and prepares the answer in advance
import torch
import torch.nn as nn

state = torch.get_rng_state()


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        again = torch.rand(x.shape).to(x.device)
        return torch.softmax(again, -1) * self.scale
