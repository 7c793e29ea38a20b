# task: tasks/group_norm.py
# device: cpu
# says: non-ASCII identifiers and comments
import ctypes

import torch
import torch.nn as nn


# --- stitchwork build helper 1: embedded verbatim; a verifier recognises it by its hash ---
def stitch_build(language, source, flags=()):
    """Compile `source` (plain C ABI; "cpp" by g++ with OpenMP, "cuda" by nvcc) and load it. The same source is compiled once."""
    import ctypes
    import hashlib
    import os
    import shutil
    import subprocess
    import tempfile

    if language == "cuda":
        compiler = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        base = ["-O3", "-std=c++17", "-shared", "-Xcompiler=-fPIC", "-arch=" + os.environ.get("STITCH_CUDA_ARCH", "native")]
    else:
        compiler = shutil.which("g++") or "g++"
        base = ["-O3", "-march=native", "-std=c++17", "-fopenmp", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math"]
    command = [compiler, *base, *flags]
    key = hashlib.sha256("\0".join([language, source, *command[1:]]).encode()).hexdigest()
    folder = os.environ.get("STITCH_BUILD_DIR") or os.path.join(tempfile.gettempdir(), "stitch-build-%d" % os.getuid())
    library = os.path.join(folder, key + ".so")
    if not os.path.exists(library):
        if os.environ.get("STITCH_BUILD") == "lookup":
            raise RuntimeError("this source was not built beforehand: call stitch_build when the module is imported")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            unit = os.path.join(scratch, "kernels.cu" if language == "cuda" else "kernels.cpp")
            with open(unit, "w") as file:
                file.write(source)
            done = subprocess.run([*command, unit, "-o", unit + ".so"], capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError("%s failed:\n%s" % (os.path.basename(compiler), done.stderr))
            os.replace(unit + ".so", library)
    return ctypes.CDLL(library)


# --- end of the stitchwork build helper ---

# Gruppennormalisierung: μ und σ² je Gruppe, danach γ·x̂ + β und schließlich silu(·) — 組ごとの正規化。
QUELLE = r"""
#include <cmath>
#include <cstdint>

// x̂ = (x − μ) / √(σ² + ε)
extern "C" void gruppennorm(const float* x, const float* w, const float* b, float* y, int64_t stapel, int64_t kanaele, int64_t flaeche,
                            int64_t gruppen, double eps) {
  const int64_t je = kanaele / gruppen, n = je * flaeche;
#pragma omp parallel for collapse(2)
  for (int64_t s = 0; s < stapel; ++s)
    for (int64_t g = 0; g < gruppen; ++g) {
      const int64_t anfang = (s * kanaele + g * je) * flaeche;
      double mittel = 0, quadrat = 0;
      for (int64_t i = 0; i < n; ++i) mittel += x[anfang + i];
      mittel /= n;
      for (int64_t i = 0; i < n; ++i) quadrat += (x[anfang + i] - mittel) * (x[anfang + i] - mittel);
      const double skala = 1 / std::sqrt(quadrat / n + eps);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t k = g * je + i / flaeche;
        const double v = (x[anfang + i] - mittel) * skala * w[k] + b[k];
        y[anfang + i] = float(v / (1 + std::exp(-v)));
      }
    }
}
"""
BIBLIOTHEK = stitch_build("cpp", QUELLE)
BIBLIOTHEK.gruppennorm.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 4 + [ctypes.c_double]
BIBLIOTHEK.gruppennorm.restype = None


class ModelNew(nn.Module):
    """Normalisiert „gruppenweise“ – ε kommt aus dem Modul."""

    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        größe = x.contiguous()
        ŷ = torch.empty_like(größe)
        zeiger = [t.data_ptr() for t in (größe, self.norm.weight, self.norm.bias, ŷ)]
        fläche = größe[0, 0].numel()
        BIBLIOTHEK.gruppennorm(*zeiger, größe.shape[0], größe.shape[1], fläche, self.norm.num_groups, self.norm.eps)
        return ŷ
