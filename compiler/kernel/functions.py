"""The scalar functions that kernels call by name. Each row holds all facts about one function: its name in each language and its cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """A function of float32 values. Names that end in `_f`, as well as `at_least` and `at_most`, belong to the compiler's own functions
    (`targets/*/math_text.py`); the others come from the C or CUDA library."""

    cpp: str
    cuda: str = ""  # "" if it has the same name as in C++
    triton: str = ""  # in libdevice, which is as accurate as PyTorch's operators; "" if `targets/triton/expressions.py` prints the function itself
    dear: bool = False  # expensive: a kernel keeps its result for the next pass and does not recompute it for each reader


# Functions of one value. The operator `aten.NAME` is lowered to the function NAME.
OF_ONE = {
    "exp": Function("exp_f", "expf", "exp", dear=True),
    "exp2": Function("exp2f", triton="exp2", dear=True),
    "expm1": Function("expm1_f", "expm1f", "expm1", dear=True),
    "log": Function("log_f", "logf", "log", dear=True),
    "log2": Function("log2f", triton="log2"),
    "log10": Function("log10f", triton="log10"),
    "log1p": Function("log1p_f", "log1pf", "log1p", dear=True),
    "sqrt": Function("sqrtf"),
    "sigmoid": Function("sigmoid_f", dear=True),
    "tanh": Function("tanh_f", "tanhf", "tanh", dear=True),
    "sinh": Function("sinhf", triton="sinh"),
    "cosh": Function("coshf", triton="cosh"),
    "sin": Function("sinf", triton="sin", dear=True),
    "cos": Function("cosf", triton="cos", dear=True),
    "tan": Function("tanf", triton="tan", dear=True),
    "asin": Function("asinf", triton="asin"),
    "acos": Function("acosf", triton="acos"),
    "atan": Function("atanf", triton="atan"),
    "asinh": Function("asinhf", triton="asinh", dear=True),
    "acosh": Function("acoshf", triton="acosh", dear=True),
    "erf": Function("erf_f", "erff", "erf", dear=True),
    "erfc": Function("erfcf", triton="erfc", dear=True),
}
FUNCTIONS = OF_ONE | {
    "floor": Function("floorf", triton="floor"),
    "ceil": Function("ceilf", triton="ceil"),
    "round": Function("rintf", triton="rint"),
    "trunc": Function("truncf", triton="trunc"),
    "pow": Function("powf", triton="pow", dear=True),
    "fmod": Function("fmodf", triton="fmod"),
    "copysign": Function("copysignf", triton="copysign"),
    "isnan": Function("std::isnan", "isnan"),
    "isinf": Function("std::isinf", "isinf"),
    "max": Function("at_least"),
    "min": Function("at_most"),
}
DEAR = frozenset(kind for kind, function in FUNCTIONS.items() if function.dear)
CPP = {kind: function.cpp for kind, function in FUNCTIONS.items()}
CUDA = {kind: function.cuda or function.cpp for kind, function in FUNCTIONS.items()}
LIBDEVICE = {kind: function.triton for kind, function in FUNCTIONS.items() if function.triton}
