"""The module-level functions that a printed forward calls."""

from __future__ import annotations

import re
from collections.abc import Collection

DENSE = '''
def dense(name, value, shape, dtype):
    """`value` as contiguous memory, if it has the shape and type that the kernels were made for."""
    if value.shape != shape or value.dtype != dtype:
        raise ValueError(f"{name}: made for {shape} of {dtype}, got {tuple(value.shape)} of {value.dtype}")
    value = value.contiguous()
'''
EXACT = '''

def exact(name, value, dtype):
    """`value` in the type that the kernels were made for, if nothing of it is lost: some callers hand over every input in one type."""
    if value.dtype == dtype:
        return value
    converted = value.to(dtype)
    if not torch.equal(converted.to(value.dtype), value):
        raise ValueError(f"{name}: made for {dtype}, got {value.dtype} with values that are none")
    return converted
'''
AS_IT_IS = "    return value\n"
ALIGNED = "    return value.clone() if value.data_ptr() % 16 else value  # kernels load four floats at once\n"


GROUPED = '''

def grouped(x, weight, begins):
    """Each row of `x` by the weight (columns x depth) of its group: group g has the rows from begins[g] to begins[g + 1]."""
    found = x.new_zeros(x.shape[0], weight.shape[1])
    places = begins.tolist()
    for group, (first, end) in enumerate(zip(places, places[1:])):
        found[first:end] = torch.nn.functional.linear(x[first:end], weight[group])
    return found
'''
ROUTED = '''

def routed(numbers, first, groups):
    """The places of `numbers` in the order of their values, these values, and where each of the groups begins, with the end of the last."""
    values, order = torch.sort(numbers, stable=True)
    begins = torch.searchsorted(values, torch.arange(first, first + groups + 1, device=numbers.device))
    return torch.cat((order, values, begins))
'''
OF_GROUPS = {"grouped": GROUPED, "routed": ROUTED}


def functions(names: dict[str, str], aligned: bool, check: str, exact: bool, wanted: Collection[str] = ()) -> str:
    """Returns the text of the functions. `names` maps them to their names in the program, `aligned` means that kernels load 16 bytes at a time,
    `check` is the function that checks the result of a launch, `exact` means that integer or boolean inputs may be passed as floating-point tensors,
    and `wanted` holds keys of OF_GROUPS."""
    text = DENSE + (ALIGNED if aligned else AS_IT_IS) + (EXACT if exact else "") + "".join(OF_GROUPS[word] for word in wanted) + check
    return re.sub(r"\bdef (\w+)", lambda match: f"def {names[match[1]]}", text)
