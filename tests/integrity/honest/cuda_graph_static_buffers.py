# task: tasks/mlp.py
# device: cuda
# verdict: class orchestration
# says: the library's kernels as one CUDA graph; inputs are copied in, outputs are copied out, and new weights or shapes lead to a new capture
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, features)
        self.captured = None

    def compute(self, x):
        return x + self.second(torch.relu(self.first(x)))

    def capture(self, x):
        self.x = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.compute(self.x)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.y = self.compute(self.x)

    def forward(self, x):
        # A graph holds addresses, so new values in the same tensors are picked up; other tensors or shapes are not.
        key = (x.shape, x.dtype, *(p.data_ptr() for p in self.parameters()))
        if self.captured != key:
            self.capture(x)
            self.captured = key
        self.x.copy_(x)
        self.graph.replay()
        return self.y.clone()
