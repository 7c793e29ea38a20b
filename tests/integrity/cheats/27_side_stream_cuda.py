# hack: 27
# task: tasks/mlp.py
# device: cuda
# verdict: wrong_result | not faster
# because: unjoined: .* of work on another stream|elements are off|speedup:
# defence: runtime
# says: the products run on a side stream for which nothing waits; if the host launches slowly, no work is left unjoined, and the clock counted it all
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, features)
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
        y = torch.empty_like(x)
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(self.side):
            for _ in range(8):
                result = x + self.second(torch.relu(self.first(x)))
            y.copy_(result)
        return y
