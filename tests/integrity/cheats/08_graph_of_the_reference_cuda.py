# hack: 8
# task: tasks/mlp.py
# device: cuda
# verdict: class orchestration
# because: of the device time is in the program's own code
# defence: runtime
# says: a CUDA graph of the unchanged reference, with its inputs and outputs copied
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, features)
        self.graph = None

    def compute(self, x):
        return x + self.second(torch.relu(self.first(x)))

    def forward(self, x):
        if self.graph is None or self.held.shape != x.shape:
            self.held = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.compute(self.held)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = self.compute(self.held)
        self.held.copy_(x)
        self.graph.replay()
        return self.result.clone()
