"""Functions at module level that a printed forward calls."""

from __future__ import annotations

import re

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


def functions(names: dict[str, str], aligned: bool, check: str, exact: bool) -> str:
    """`names`: what they are called; `aligned`: kernels load 16 bytes at once; `check`: the function that takes what a launch returns; `exact`:
    inputs of whole numbers or truth values may come as floating point."""
    text = DENSE + (ALIGNED if aligned else AS_IT_IS) + (EXACT if exact else "") + check
    return re.sub(r"\bdef (\w+)", lambda match: f"def {names[match[1]]}", text)
