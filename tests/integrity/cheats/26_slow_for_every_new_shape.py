# hack: 26
# task: tasks/many_shapes.py
# device: any
# verdict: wrong_result
# because: heavy-tailed|negative
# defence: runtime
# says: is slow with every shape that it has not seen before, as if it were compiling, so that time runs out during the variants
import time

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def forward(self, x):
        if x.shape not in self.seen:
            self.seen.add(x.shape)
            time.sleep(3.0)
        return x * 0.5 + 0.25
