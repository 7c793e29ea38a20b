"""Vectorisable single-precision functions for C++. g++ turns loops over them into SIMD code, which it cannot do for libm's functions.

The coefficients are minimax fits of our own (Lawson iteration on Chebyshev nodes, weighted by relative error).
"""

from __future__ import annotations

BF16 = """\
// bfloat16 in memory: the upper half of a float, rounded to nearest, ties to even.
struct bf16 {
    unsigned short bits;
    bf16() = default;
    explicit bf16(float value) { *this = value; }
    bf16& operator=(float value) {
        const union { float f; unsigned u; } from = {value};
        bits = value == value ? (from.u + 0x7fff + (from.u >> 16 & 1)) >> 16 : 0x7fc0;
        return *this;
    }
    explicit operator float() const {
        const union { unsigned u; float f; } wide = {(unsigned)bits << 16};
        return wide.f;
    }
};
"""
E4M3 = """\
// float8 in memory, which is only read: 4 bits of exponent (bias 7), 3 of fraction; all of them set is NaN. Subnormal numbers take the exponent
// of the least normal one, which is then subtracted, because arithmetic with subnormal floats is slow.
struct e4m3 {
    unsigned char bits;
    explicit operator float() const {
        const unsigned size = bits & 0x7fu, below = size < 8;
        const union { unsigned u; float f; } moved = {(size << 20) + ((120 + below) << 23)};
        const union { float f; unsigned u; } wide = {moved.f - (below ? 0x1p-6f : 0.0f)};
        const union { unsigned u; float f; } whole = {(size == 0x7fu ? 0x7fc00000u : wide.u) | (bits & 0x80u) << 24};
        return whole.f;
    }
};
"""
E5M2 = """\
// float8 in memory, which is only read: the upper half of a _Float16.
struct e5m2 {
    unsigned char bits;
    explicit operator float() const {
        const union { unsigned short u; _Float16 h; } wide = {(unsigned short)(bits << 8)};
        return (float)wide.h;
    }
};
"""
TYPES = {"bfloat16": BF16, "float16": "using fp16 = _Float16;\n", "float8_e4m3fn": E4M3, "float8_e5m2": E5M2}
EXP = """\
// exp(x) within 1 ulp: 2^n * exp(r), |r| <= ln(2)/2; the scale is applied in two steps, so that subnormal results are right.
static inline float exp_f(float x) {
    const float bounded = x < -104.0f ? -104.0f : (x > 89.0f ? 89.0f : x);
    const float n = rintf(bounded * 1.44269504f);
    const float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, bounded));
    float p = 0.0013814539f;
    p = fmaf(p, r, 0.0083687454f);
    p = fmaf(p, r, 0.041668389f);
    p = fmaf(p, r, 0.16666521f);
    p = fmaf(p, r, 0.49999994f);
    p = fmaf(p, r * r, r) + 1.0f;
    const int whole = (int)n, half = whole >> 1;
    union { int i; float f; } low = {(half + 127) << 23}, high = {(whole - half + 127) << 23};
    return p * low.f * high.f;
}
"""
LOG = """\
// log(x) within 2 ulp for normal x: x = 2^n * (1 + f), sqrt(1/2) <= 1 + f < sqrt(2).
static inline float log_f(float x) {
    union { float f; int i; } bits = {x}, mantissa;
    const int shifted = bits.i - 0x3f3504f3;
    const float n = (float)(shifted >> 23);
    mantissa.i = (shifted & 0x7fffff) + 0x3f3504f3;
    const float f = mantissa.f - 1.0f;
    float p = 0.0674664f;
    p = fmaf(p, f, -0.11675652f);
    p = fmaf(p, f, 0.11888162f);
    p = fmaf(p, f, -0.12405589f);
    p = fmaf(p, f, 0.14219552f);
    p = fmaf(p, f, -0.16667996f);
    p = fmaf(p, f, 0.20002119f);
    p = fmaf(p, f, -0.25000009f);
    p = fmaf(p, f, 0.33333313f);
    const float tail = fmaf(p * f, f * f, fmaf(-0.5f * f, f, n * -2.12194440e-4f));
    const float value = fmaf(n, 0.693359375f, f + tail);
    return x > 1.17549435e-38f && x < INFINITY ? value : logf(x);
}
"""
LOG1P = """\
// log(1 + x): the rounding of 1 + x is put right to first order. Infinity stays infinity.
static inline float log1p_f(float x) {
    const float u = 1.0f + x;
    return u == 1.0f || u == INFINITY ? x : log_f(u) * (x / (u - 1.0f));
}
"""
SIGMOID = """\
static inline float sigmoid_f(float x) {
    return 1.0f / (1.0f + exp_f(-x));
}
"""
TANH = """\
// tanh(x) within 2 ulp: a polynomial near 0, 1 - 2 / (exp(2|x|) + 1) elsewhere.
static inline float tanh_f(float x) {
    const float a = fabsf(x), z = x * x;
    float p = 0.0020264605f;
    p = fmaf(p, z, -0.0080471421f);
    p = fmaf(p, z, 0.021646896f);
    p = fmaf(p, z, -0.053936757f);
    p = fmaf(p, z, 0.13333125f);
    p = fmaf(p, z, -0.33333328f);
    const float near = fmaf(p * z, x, x);
    const float far = copysignf(1.0f - 2.0f / (exp_f(2.0f * a) + 1.0f), x);
    return a < 0.65f ? near : far;
}
"""
ERF = """\
// erf(x) within 2 ulp: a polynomial in x^2 below 1, 1 - exp(q(|x|)) above.
static inline float erf_f(float x) {
    const float z = x * x;
    float p = -9.6415188e-6f;
    p = fmaf(p, z, 0.00011256949f);
    p = fmaf(p, z, -0.00084828289f);
    p = fmaf(p, z, 0.0052209455f);
    p = fmaf(p, z, -0.0268654f);
    p = fmaf(p, z, 0.11283782f);
    p = fmaf(p, z, -0.37612638f);
    p = fmaf(p, z, 1.12837923f);
    const float a = fabsf(x) < 4.1f ? fabsf(x) : 4.1f;
    float q = 0.00018797166f;
    q = fmaf(q, a, -0.0029640058f);
    q = fmaf(q, a, 0.021906475f);
    q = fmaf(q, a, -0.1032562f);
    q = fmaf(q, a, -0.63796502f);
    q = fmaf(q, a, -1.1272023f);
    q = fmaf(q, a, -0.00031246978f);
    const float far = copysignf(1.0f - exp_f(q), x);
    return fabsf(x) < 1.0f ? x * p : (x == x ? far : x);
}
"""
EXPM1 = """\
// exp(x) - 1: a Taylor polynomial near 0, where the subtraction would cancel.
static inline float expm1_f(float x) {
    float p = 1.0f / 5040.0f;
    p = fmaf(p, x, 1.0f / 720.0f);
    p = fmaf(p, x, 1.0f / 120.0f);
    p = fmaf(p, x, 1.0f / 24.0f);
    p = fmaf(p, x, 1.0f / 6.0f);
    p = fmaf(p, x, 0.5f);
    return fabsf(x) < 0.35f ? fmaf(p * x, x, x) : exp_f(x) - 1.0f;
}
"""
BOUNDS = """\
// Larger and smaller of two values; NaN stays NaN, as in PyTorch.
static inline float at_least(float x, float low) {
    return x < low || low != low ? low : x;
}
static inline float at_most(float x, float high) {
    return x > high || high != high ? high : x;
}
"""
STREAM = """\
// Copy a finished line to memory without reading the target into the cache first.
static inline void stream_line(float* __restrict to, const float* __restrict from, long count) {
    long i = 0;
#if defined(__AVX512F__)
    for (; i < count && ((size_t)(to + i) & 63); ++i) to[i] = from[i];
    for (; i + 16 <= count; i += 16) _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
#elif defined(__AVX__)
    for (; i < count && ((size_t)(to + i) & 31); ++i) to[i] = from[i];
    for (; i + 8 <= count; i += 8) _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
#endif
    for (; i < count; ++i) to[i] = from[i];
#if defined(__AVX__)
    _mm_sfence();
#endif
}
"""
NEEDS = {"log1p": ["log"], "sigmoid": ["exp"], "tanh": ["exp"], "erf": ["exp"], "expm1": ["exp"]}
SOURCES = {"exp": EXP, "log": LOG, "log1p": LOG1P, "sigmoid": SIGMOID, "tanh": TANH, "erf": ERF, "expm1": EXPM1, "max": BOUNDS, "min": BOUNDS}


def sources(kinds: set[str]) -> list[str]:
    """Returns the definitions of the functions in `kinds`, each once and after the functions that it calls."""
    wanted = dict.fromkeys(name for kind in SOURCES if kind in kinds for name in [*NEEDS.get(kind, []), kind])
    return list(dict.fromkeys(SOURCES[name] for name in sorted(wanted, key=list(SOURCES).index)))
