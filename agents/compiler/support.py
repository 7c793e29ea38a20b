"""Functions at module level that a printed forward calls."""

from __future__ import annotations

DENSE = '''
def dense(name, value, shape, dtype):
    """`value` as contiguous memory, if it has the shape and type that the kernels were made for."""
    if value.shape != shape or value.dtype != dtype:
        raise ValueError(f"{name}: made for {shape} of {dtype}, got {tuple(value.shape)} of {value.dtype}")
    value = value.contiguous()
'''
AS_IT_IS = "    return value\n"
ALIGNED = "    return value.clone() if value.data_ptr() % 16 else value  # kernels load four floats at once\n"
CHECK = '''

def check(status):
    """A launch reports its error as a number; 0 is none."""
    if status != 0:
        raise RuntimeError(f"a kernel could not be launched: CUDA error {status}")
'''


def functions(aligned: bool, checked: bool) -> str:
    """`aligned`: kernels load 16 bytes at once; `checked`: launches return their error."""
    return DENSE + (ALIGNED if aligned else AS_IT_IS) + (CHECK if checked else "")
