# hack: 26
# task: tasks/many_shapes.py
# device: any
# verdict: wrong_result
# because: heavy-tailed|negative
# defence: runtime
# says: takes long to construct and to warm up, so that no time is left for other inputs
import time

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep(2.0)
        self.warm = False

    def forward(self, x):
        if not self.warm:
            self.warm = True
            time.sleep(4.0)
        return x * 0.5 + 0.25
