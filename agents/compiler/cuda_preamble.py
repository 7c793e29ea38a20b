"""What every printed CUDA source starts with, and how scalar operations are written in CUDA C++."""

from __future__ import annotations

import math
from typing import Any

C_TYPES = {
    "float32": "float", "int64": "long long", "int32": "int", "int16": "short", "int8": "signed char", "uint8": "unsigned char", "bool": "bool",
}  # fmt: skip

PIECES = {
    "load4": """\
template <class T> __device__ __forceinline__ void st_load4(T (&chunk)[4], const T* from) {
    if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<float4*>(chunk) = *reinterpret_cast<const float4*>(from);
    } else {
        for (int v = 0; v < 4; ++v) chunk[v] = from[v];
    }
}""",
    "store4": """\
template <class T> __device__ __forceinline__ void st_store4(T* to, const T (&chunk)[4]) {
    if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(chunk);
    } else {
        for (int v = 0; v < 4; ++v) to[v] = chunk[v];
    }
}""",
    "StSum": "template <class T> struct StSum { using type = T; static __device__ T of(T a, T b) { return a + b; } };",
    "StProd": "template <class T> struct StProd { using type = T; static __device__ T of(T a, T b) { return a * b; } };",
    "StMax": "template <class T> struct StMax { using type = T; static __device__ T of(T a, T b) { return a > b || a != a ? a : b; } };  // keeps NaN",
    "StMin": "template <class T> struct StMin { using type = T; static __device__ T of(T a, T b) { return a < b || a != a ? a : b; } };  // keeps NaN",
    "st_warp_reduce": """\
template <class Combine> __device__ __forceinline__ typename Combine::type st_warp_reduce(typename Combine::type value) {
    for (int step = 16; step > 0; step /= 2) value = Combine::of(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}""",
    "st_block_reduce": """\
template <class Combine, int THREADS> __device__ typename Combine::type st_block_reduce(typename Combine::type value) {
    __shared__ typename Combine::type parts[32];
    value = st_warp_reduce<Combine>(value);
    __syncthreads();  // the last reduction's parts have been read
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) value = Combine::of(value, parts[warp]);
    return value;
}""",
    "st_cluster_reduce": """\
template <class Combine, int THREADS, int BLOCKS> __device__ typename Combine::type st_cluster_reduce(typename Combine::type value) {
    __shared__ typename Combine::type part;
    auto cluster = cooperative_groups::this_cluster();
    value = st_block_reduce<Combine, THREADS>(value);
    if (threadIdx.x == 0) part = value;
    cluster.sync();
    value = *cluster.map_shared_rank(&part, 0);
    for (int block = 1; block < BLOCKS; ++block) value = Combine::of(value, *cluster.map_shared_rank(&part, block));
    cluster.sync();  // nobody overwrites or leaves while a neighbour still reads
    return value;
}""",
    "st_block_scan": """\
// Turns each thread's running sums of its own VECTOR elements into running sums of the whole row so far; `carry` is the row's total so far.
template <class T, int THREADS, int VECTOR> __device__ void st_block_scan(T (&sums)[VECTOR], T& carry) {
    __shared__ T warps[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T mine = sums[VECTOR - 1], before = mine;
    for (int step = 1; step < 32; step *= 2) {
        const T other = __shfl_up_sync(0xffffffffu, before, step);
        if (lane >= step) before += other;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = before;
    __syncthreads();
    T total = 0, earlier = 0;
    for (int at = 0; at < THREADS / 32; ++at) {
        if (at == warp) earlier = total;
        total += warps[at];
    }
    const T offset = carry + earlier + (before - mine);
    for (int v = 0; v < VECTOR; ++v) sums[v] += offset;
    carry += total;
}""",
    "st_gather": """\
template <class T> __device__ __forceinline__ T st_gather(const T* from, long long at, long long limit, long long stride) {
    return at >= 0 && at < limit ? from[at * stride] : T(CUDART_NAN_F);  // an index outside the tensor shows as NaN
}""",
    "st_max": "template <class T> __device__ __forceinline__ T st_max(T a, T b) { return a > b || a != a ? a : b; }  // keeps NaN",
    "st_min": "template <class T> __device__ __forceinline__ T st_min(T a, T b) { return a < b || a != a ? a : b; }  // keeps NaN",
    "st_sigmoid": "__device__ __forceinline__ float st_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }",
}
NEEDS = {"st_block_reduce": ["st_warp_reduce"], "st_cluster_reduce": ["st_warp_reduce", "st_block_reduce"]}
CALLED = {"load4": "st_load4", "store4": "st_store4"}


def preamble(kernels: str) -> str:
    """The pieces that the printed `kernels` use, and no others."""
    wanted = {name for name in PIECES if f"{CALLED.get(name, name)}<" in kernels or f"{CALLED.get(name, name)}(" in kernels}
    wanted |= {need for name in wanted for need in NEEDS.get(name, [])}
    include = ["#include <cuda_runtime.h>", "#include <math_constants.h>"]
    if "st_cluster_reduce" in wanted:
        include.insert(0, "#include <cooperative_groups.h>")
    return "\n".join(include) + "\n\n" + "\n\n".join(text for name, text in PIECES.items() if name in wanted)


def identity(how: str, dtype: str) -> str:
    if how == "sum":
        return "0"
    if how == "prod":
        return "1"
    how = how.removeprefix("a")
    lowest = {
        "float32": "-CUDART_INF_F", "int64": "LLONG_MIN", "int32": "INT_MIN", "int16": "SHRT_MIN", "int8": "SCHAR_MIN", "uint8": "0", "bool": "false",
    }  # fmt: skip
    highest = {
        "float32": "CUDART_INF_F", "int64": "LLONG_MAX", "int32": "INT_MAX", "int16": "SHRT_MAX", "int8": "SCHAR_MAX", "uint8": "255", "bool": "true",
    }  # fmt: skip
    return lowest[dtype] if how == "max" else highest[dtype]


INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
FLOAT_FUNCTIONS = {
    "exp": "expf", "log": "logf", "sqrt": "sqrtf", "rsqrt": "rsqrtf", "tanh": "tanhf", "erf": "erff", "expm1": "expm1f", "log1p": "log1pf",
    "sin": "sinf", "cos": "cosf", "tan": "tanf", "pow": "powf", "floor": "floorf", "ceil": "ceilf", "trunc": "truncf", "round": "rintf",
    "exp2": "exp2f", "log2": "log2f", "log10": "log10f", "atan": "atanf", "asin": "asinf", "acos": "acosf", "sinh": "sinhf", "cosh": "coshf",
    "erfc": "erfcf", "sigmoid": "st_sigmoid",
}  # fmt: skip


def scalar(kind: str, args: list[str], dtype: str, attr: Any, source: str) -> str:
    """C++ expression of one scalar operation. `dtype` is the result's, `source` the first argument's."""
    if kind == "const":
        return literal(attr, dtype)
    if kind == "cast":
        return f"{args[0]} != 0" if dtype == "bool" else f"({C_TYPES[dtype]}){args[0]}"
    if kind == "spread":
        return args[0]
    if kind == "where":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if kind in INFIX:
        return f"{args[0]} {INFIX[kind]} {args[1]}"
    if kind in ("max", "min"):
        return f"st_{kind}<{C_TYPES[dtype]}>({args[0]}, {args[1]})"
    if kind == "neg":
        return f"-{args[0]}"
    if kind == "not":
        return f"!{args[0]}"
    if kind == "invert":
        return f"~{args[0]}"
    if kind == "abs":
        return f"fabsf({args[0]})" if dtype == "float32" else f"({args[0]} < 0 ? -{args[0]} : {args[0]})"
    if kind == "reciprocal":
        return f"1.0f / {args[0]}"
    if kind == "sign":
        return f"({C_TYPES[dtype]})(({args[0]} > 0) - ({args[0]} < 0))"
    if kind == "isnan":
        return f"{args[0]} != {args[0]}"
    if kind == "isinf":
        return f"isinf({args[0]})"
    if kind in FLOAT_FUNCTIONS:
        return f"{FLOAT_FUNCTIONS[kind]}({', '.join(args)})"
    raise KeyError(f"no CUDA for the scalar operation {kind!r}")


def literal(value: Any, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    if dtype != "float32":
        return f"{int(value)}LL" if dtype == "int64" else str(int(value))
    if math.isnan(value):
        return "CUDART_NAN_F"
    if math.isinf(value):
        return "CUDART_INF_F" if value > 0 else "-CUDART_INF_F"
    text = repr(float(value))
    return f"({text}f)" if value < 0 else f"{text}f"
