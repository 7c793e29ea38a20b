"""Light torch headers for one source. They are in a folder that precedes torch's own in the include path, and its umbrella headers contain only what
the source uses by name.

Nothing in torch is replaced. The `at::Tensor` class has the same layout and symbols, but declares only those of its 1,200 generated methods that the
source calls. Similarly, only the functions that the source calls are declared. All text is extracted from the headers of the installed torch. If the
extraction does not work for this torch version, `light_headers` raises an exception. If a source needs something that it does not name, compilation
fails. In both cases, the ordinary headers are used. Measured on an H200 host with torch 2.11: including `torch/extension.h` in a CUDA unit takes 48
s; `ATen/core/TensorBase.h` takes 4 to 5 s.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache

BINDING_HEADER = "stitch_binding.h"
# Umbrella headers that include all of torch; the single light header replaces each of them.
UMBRELLAS = ("torch/extension.h", "torch/torch.h", "torch/all.h", "torch/types.h", "torch/script.h", "ATen/ATen.h")
# Headers that every operator's header includes but does not need, unless the source itself names something that they declare.
_CONTEXTS = {
    "ATen/Context.h": r"\b(globalContext|Context|hasCUDA|manual_seed|detail)\b",
    "ATen/TensorUtils.h": r"\b(TensorArg|TensorGeometryArg|check(Dim|Size|SameSize|SameType|SameGPU|Contiguous|Defined|AllSame\w*|ScalarTypes?))\b",
    "ATen/TracerMode.h": r"\btracer\b",
}
# Headers that the umbrella headers provide in addition to operators; each is included if a source names its contents.
_ON_DEMAND = {
    "ATen/Dispatch.h": r"\bAT_DISPATCH_(?!V2)|\bAT_PRIVATE_CASE_TYPE|\bAT_DISPATCH_CASE",
    "ATen/Dispatch_v2.h": r"\bAT_DISPATCH_V2\b",
    "ATen/AccumulateType.h": r"\b(acc_type|toAccumulateType|acc_type_device)\b",
    "ATen/OpMathType.h": r"\b(opmath_type|OpMathType|toOpMathType)\b",
    "ATen/Parallel.h": r"\b(parallel_for|parallel_reduce|get_num_threads|set_num_threads)\b",
    "ATen/core/grad_mode.h": r"\b(NoGradGuard|AutoGradMode|GradMode)\b",
    "c10/core/InferenceMode.h": r"\bInferenceMode\b",
    "ATen/ExpandUtils.h": r"\b(infer_size\w*|expand_\w+|are_expandable|sum_to\w*)\b",
    "ATen/ScalarOps.h": r"\b(scalar_to_tensor|wrapped_scalar_tensor)\b",
    "ATen/WrapDimUtils.h": r"\bmaybe_wrap_dims?\b",
    "ATen/NumericUtils.h": r"\b_isnan\b|\b_isinf\b",
    "ATen/ceil_div.h": r"\bat::ceil_div\b|\btorch::ceil_div\b",
    "ATen/core/Formatting.h": r"(?<!<)<<(?!<)",
    "c10/util/irange.h": r"\birange\b",
    "c10/util/complex.h": r"\bc10::complex\b",
    "c10/util/Optional.h": r"\bc10::(optional|nullopt|make_optional)\b",
}
# Methods that the source does not call, but that torch's headers for lists and values call; some included headers need those.
_SPARSE = {"_values", "_indices", "values", "indices", "crow_indices", "col_indices", "ccol_indices", "row_indices"}
# A source that names any of these uses the front end, the bindings, or autograd, and therefore needs the ordinary headers.
_FRONT_END = (
    r"\btorch::(nn|autograd|jit|optim|data|indexing|serialize|tensor|Library|CustomClassHolder|class_|from_file|save|load)\b"
    r"|\b(requires_grad\w*|AutogradContext|TensorIterator\w*|TensorIndex|register_hook|TORCH_LIBRARY\w*|STABLE_TORCH_LIBRARY\w*)\b"
    r"|\bat::(indexing|native|tensor|vec)\b|#\s*include\s*[<\"](torch/(csrc|library|nn|python|custom_class)|ATen/(native|Functions))"
)
_BEYOND_BINDING = re.compile(_FRONT_END)
_BEYOND = re.compile(_FRONT_END + r"|\b(PYBIND11\w*|pybind11|THP\w+)\b|\bpy::|#\s*include\s*[<\"]pybind11")
# `ATen/cuda/CUDAContext.h` includes cuBLAS, cuSPARSE and cuSOLVER; most sources need only the current stream.
_CUDA_LIBRARIES = re.compile(
    r"\b(getCurrentDeviceProperties|getDeviceProperties|warp_size|canDeviceAccessPeer|getCUDADeviceAllocator|\w*Handle\w*|cu(blas|sparse|solver)\w*)\b"
)
# The macro is repeated from `ATen/cuda/Exceptions.h`, which includes those libraries as well.
_CONTEXT_OF_CUDA = (
    "#pragma once\n#include <cuda_runtime_api.h>\n#include <c10/cuda/CUDAException.h>\n#include <c10/cuda/CUDAFunctions.h>\n"
    "#include <c10/cuda/CUDAStream.h>\n#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)\n"
)
_STANDARD = (
    *("algorithm", "array", "cmath", "cstdint", "cstring", "functional", "iostream", "limits", "map", "memory", "mutex", "numeric", "optional"),
    *("sstream", "stdexcept", "string", "tuple", "type_traits", "unordered_map", "utility", "vector"),
)
_BASIC = ("ATen/core/Tensor.h", "c10/core/ScalarType.h", "c10/util/ArrayRef.h", "c10/util/Exception.h")
# The header that is precompiled once per host. It contains everything that `PYBIND11_MODULE` and `torch::wrap_pybind_function` need, with the
# complete `Tensor` class.
_BINDING = (*_BASIC, "torch/csrc/Exceptions.h", "torch/csrc/utils/pybind.h")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
_BLOCK = re.compile(r"^// aten::(\w+)[^\n]*\ninline [^\n]*?\bTensor::(\w+)\([^\n]*\n.*?^\}\n", re.DOTALL | re.MULTILINE)
_DECLARATION = re.compile(r"^  [\w:<>,&* ]+?[ &]\b(\w+)\(.*\) const;$")


class NotLight(Exception):
    """Raised when the ordinary headers must be used; the message gives the reason."""


def light_headers(source: str, include: str) -> dict[str, str]:
    """Returns the folder's files by name for a unit with the text `source`. `include` is torch's include folder. Raises `NotLight`."""
    code = _code(source)
    beyond = _BEYOND.search(code)
    if beyond:
        raise NotLight(f"the source names {beyond[0].strip()}")
    names = frozenset(re.findall(r"(?:\.|->)\s*(?:template\s+)?(\w+)", code))
    files = {"ATen/core/TensorBody.h": _tensor_body(names, include)}
    for header, wanted in _CONTEXTS.items():
        if not re.search(wanted, code):
            files[header] = "#pragma once\n#include <c10/util/Exception.h>\n"
    files["ATen/DeviceGuard.h"] = _device_guard(include)
    lines = [f"#include <{name}>" for name in [*_STANDARD, *_BASIC, "ATen/DeviceGuard.h"]]
    lines += _called(code, include)
    files["stitch_light.h"] = "#pragma once\n" + "\n".join(lines) + "\n" + _names(include)
    for header in UMBRELLAS:
        files[header] = "#pragma once\n#include <stitch_light.h>\n"
    if "ATen/cuda/CUDAContext.h" in code and not _CUDA_LIBRARIES.search(code):
        files["ATen/cuda/CUDAContext.h"] = _CONTEXT_OF_CUDA
    return files


def binding_header(include: str) -> str:
    """Returns the text of the slim header for C++ units."""
    lines = [f"#include <{name}>" for name in [*_STANDARD, *_BINDING]]
    # It needs a macro guard because the precompiled header and the header in a unit's own folder are separate files.
    return "#ifndef STITCH_BINDING\n#define STITCH_BINDING\n" + "\n".join(lines) + "\n" + _names(include) + "#endif\n"


def binding_headers(source: str, include: str) -> dict[str, str]:
    """Returns the folder's files for the C++ unit of an extension. Raises `NotLight`."""
    code = _code(source)
    if not any(name in code for name in ("torch/", "ATen/", "c10/", "pybind11/")):
        raise NotLight("the source includes none of torch's")
    beyond = _BEYOND_BINDING.search(code)
    if beyond:
        raise NotLight(f"the source names {beyond[0].strip()}")
    text = "#pragma once\n#include <stitch_binding.h>\n" + "\n".join(_called(code, include)) + "\n"
    return {BINDING_HEADER: binding_header(include)} | dict.fromkeys(UMBRELLAS, text)


def precompiled_key(flags: list[str]) -> str:
    """Returns the key of the precompiled header that matches a C++ command. The key covers all flags except include paths and the module's name."""
    kept: list[str] = []
    skip = False
    for flag in flags:
        if skip or flag.startswith("-DTORCH_EXTENSION_NAME="):
            skip = False
        elif flag in ("-I", "-isystem", "-L", "-idirafter"):
            skip = True
        elif not flag.startswith(("-I", "-isystem")):
            kept.append(flag)
    return hashlib.sha256("\0".join(kept).encode()).hexdigest()[:24]


def _code(source: str) -> str:
    """Strips comments and strings from a source, because messages can mention functions that the source does not call. Keeps quoted header names."""
    return _COMMENT.sub(lambda match: match[0] if match[0].endswith(('.h"', '.cuh"')) else " ", source)


def _called(code: str, include: str) -> list[str]:
    """Returns the include lines for the operators that a source calls."""
    headers = [header for header, pattern in _ON_DEMAND.items() if re.search(pattern, code) and os.path.exists(f"{include}/{header}")]
    names = sorted(set(re.findall(r"\b(?:at|torch)::(\w+)\s*\(", code)))
    headers += [f"ATen/ops/{name}.h" for name in names if os.path.exists(f"{include}/ATen/ops/{name}.h")]
    return [f"#include <{header}>" for header in headers]


@cache
def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise NotLight(f"this torch has no {os.path.basename(path)}") from error


def _names(include: str) -> str:
    """Returns the part of `torch/types.h` that makes `torch::` an alias of `at::`, without its includes."""
    text = _read(f"{include}/torch/csrc/api/include/torch/types.h")
    found = re.search(r"^namespace torch \{.*?^\} // namespace torch$", text, re.DOTALL | re.MULTILINE)
    if found is None or "using namespace at;" not in found[0]:
        raise NotLight("torch/types.h is not as expected")
    return found[0] + "\n"


def _device_guard(include: str) -> str:
    """Returns `ATen/DeviceGuard.h` without the overload for lists, because that overload's header includes all of torch's value types."""
    text = _read(f"{include}/ATen/DeviceGuard.h")
    forms = re.findall(
        r"^inline [\w:<>]+ device_of\(const (?:Tensor|std::optional<Tensor>|c10::optional<Tensor>)& \w+\) \{.*?^\}\n", text, re.DOTALL | re.MULTILINE
    )
    return "#pragma once\n#include <ATen/core/Tensor.h>\n#include <c10/core/DeviceGuard.h>\nnamespace at {\n" + "".join(forms) + "}\n"


def _tensor_body(names: frozenset[str], include: str) -> str:
    """Returns `ATen/core/TensorBody.h`, reduced to the generated methods that are in `names` or that other members of the class call."""
    text = _read(f"{include}/ATen/core/TensorBody.h")
    begin, end = text.find("\nclass TORCH_API Tensor"), text.find("\n};\n", text.find("\nclass TORCH_API Tensor"))
    blocks = list(_BLOCK.finditer(text, end))
    if begin < 0 or end < begin or len(blocks) < 500 or "#include <ATen/MethodOperators.h>" not in text:
        raise NotLight("ATen/core/TensorBody.h is not as expected")
    generated = {block[2] for block in blocks}
    lines = text[begin:end].split("\n")
    declared = [match[1] if (match := _DECLARATION.match(line)) and match[1] in generated else "" for line in lines]
    members = "\n".join(line for line, name in zip(lines, declared, strict=True) if not name)
    rest = _BLOCK.sub("", text[end:])
    kept = ((names | _SPARSE) & generated) | (set(re.findall(r"\b(\w+)(?:<[^<>()]*>)?\(", members + rest)) & generated)
    body = "\n".join(line for line, name in zip(lines, declared, strict=True) if not name or name in kept)
    operators = sorted({_operator_header(block[1], include) for block in blocks if block[2] in kept})
    head = text[:begin].replace("#include <ATen/MethodOperators.h>", "\n".join(f"#include <ATen/ops/{name}_ops.h>" for name in operators))
    tail = _BLOCK.sub(lambda block: block[0] if block[2] in kept else "", text[end:])
    return head + body + tail


def _operator_header(operator: str, include: str) -> str:
    """Returns the name of the header that declares `at::_ops::operator` and its overloads."""
    for name in (operator, operator.removesuffix("_"), operator.strip("_")):
        if os.path.exists(f"{include}/ATen/ops/{name}_ops.h"):
            return name
    raise NotLight(f"there is no header of the operator {operator}")
