"""State that cannot be given to any program is refused, with its name and a remedy."""

import torch

from verifier.parties.loading import unusable


class Packed(torch.nn.Module):
    """Stands in for a module whose state dict contains more than tensors, such as torch.ao's quantised linear layer."""

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination[prefix + "dtype"] = torch.qint8


def test_an_entry_that_is_no_tensor_is_named():
    said = unusable(torch.nn.Sequential(Packed()))
    assert said.startswith("0.dtype of the state dict is no tensor but of type dtype")
    assert "buffers" in said


def test_tensors_of_usual_types_are_passed_on():
    assert unusable(torch.nn.BatchNorm1d(3)) == ""
