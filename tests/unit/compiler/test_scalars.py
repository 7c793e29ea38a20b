"""Values that are a single number for all elements of a kernel, and numbers that are not part of a module's state."""

import pytest

from compiler import DeviceFigures
from tests.emulator import as_cpp

SCALED = """top = torch.log(torch.tensor(1.0 / 0.01))
return x * torch.clamp(self.s, max=top).exp() + top"""
ALONE = "return x * 2, torch.log(self.a) * 2 + 1"
BOTH = "y = torch.exp(self.a)\nreturn x + y, y"


@pytest.mark.parametrize(
    ("body", "init"),
    [(SCALED, "self.s = nn.Parameter(torch.zeros(3, 1, 1))"), *[(b, "self.a = nn.Parameter(torch.tensor(3.0))") for b in (ALONE, BOTH)]],
)
@pytest.mark.parametrize("figures", [None, DeviceFigures.h200()])
def test_one_number_for_all_elements(compiled, task, figures, body, init):
    """A kernel that iterates over elements would never store a single number."""
    found = compiled(task(body, "torch.randn(2, 3, 4, 4)", init), figures=figures)
    if figures is not None and "SOURCE = r" in found.text:
        found.text = as_cpp(found.text)
    found.check()
    assert "torch.tensor(" not in found.text.split("    def forward")[-1], "a kernel that reads a constant has only its address"


@pytest.mark.slow
def test_swin_transformers_scale_of_attention(compiled, task):
    body = """scale = torch.clamp(self.logit, max=torch.log(torch.tensor(1.0 / 0.01))).exp()
a = F.normalize(x, dim=-1) @ F.normalize(x, dim=-1).transpose(-2, -1)
return torch.softmax(a * scale, dim=-1)"""
    source = task(body, "torch.randn(2, 3, 16, 8)", "self.logit = nn.Parameter(torch.zeros(3, 1, 1))")
    compiled(source).check()
    found = compiled(source, figures=DeviceFigures.h200())
    found.text = as_cpp(found.text)
    found.check()
