"""Translates a printed CUDA program for g++: launches become calls, and PTX is replaced by its counterparts in cuda_on_cpu.h."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests import kept
from verifier.build.raw import CPP_FLAGS

MEETING = re.compile(r"__syncthreads|__syncwarp|__shfl|__ballot|__any|_tf32|multiply_group|barrier_wait|cluster_meets|cudaLaunchCooperativeKernel")
HEADER = Path(__file__).with_name("cuda_on_cpu.h")
RUNS = Path(__file__).with_name("cuda_on_cpu.cpp")
BRIEF = "-O1"  # building takes longer than running, and up to twice as long with -O3


def as_cpp(program: str) -> str:
    """Returns the program for the CPU, with the same kernels and launches. Raises `ValueError` for PTX without a counterpart."""
    head, rest = program.split('SOURCE = r"""')
    source, tail = rest.split('"""', 1)
    tail = re.sub(r'stitch_build\("cuda", SOURCE(, \(.*?\))?\)', f'stitch_build("cpp", SOURCE, {flags()!r})', tail)
    tail = re.sub(
        r"stream = torch\._C\._cuda_getCurrentRawStream\(.*\)$|stream = torch\.cuda\.current_stream\(.*\)\.cuda_stream",
        "stream = 0",
        tail,
        flags=re.M,
    )
    return f'{head}SOURCE = r"""{translate(source)}"""{tail}'


def flags() -> tuple[str, ...]:
    """Returns the additional g++ flags in a translated source's `stitch_build`."""
    return BRIEF, "-Wl,--no-as-needed", str(emulator() / "libemulated.so")


@cache
def emulator() -> Path:
    """Returns a folder that contains the header, its precompiled form (used by g++ if the flags match those of a build), and the library that runs
    kernels, which all programs in a process share. The first process on a host creates the folder."""
    folder = kept.folder("emulator-" + kept.key(HEADER.read_text(), RUNS.read_text(), kept.compiler(), *CPP_FLAGS, BRIEF)[:16])
    header = kept.made(folder / HEADER.name, lambda place: shutil.copy(HEADER, place))
    kept.made(folder / f"{HEADER.name}.gch", lambda place: compiled(header, place, "-x", "c++-header"))
    kept.made(folder / "libemulated.so", lambda place: compiled(RUNS, place))
    return folder


def compiled(source: Path, place: Path, *flags: str) -> None:
    subprocess.run(["g++", *CPP_FLAGS, BRIEF, *flags, str(source), "-o", str(place)], check=True)


def translate(source: str) -> str:
    """Translates printed kernels into a C++ unit, to be built with `flags()`. Raises `ValueError` for PTX without a counterpart."""
    meet = str(bool(MEETING.search(source))).lower()
    source = without_ptx(re.sub(r"^#ifdef __CUDA_ARCH_FEAT_SM90_ALL$.*?^#endif$\n", "", source, flags=re.M | re.S))
    source = re.sub(r'^#include "?<?cuda[\w.]*>?"?$', "", source, flags=re.M)
    source = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];", r"\1* \2 = (\1*)emulated::shared_memory();", source)
    if "__cluster_dims__" in source:
        source = re.sub(r"__shared__ (\w+) (\w+)((?:\[[^\]]+\])?);", r"static emulated::PerBlock<\1\3> \2_each; auto& \2 = \2_each.mine();", source)
    sizes = {name: size for size, name in re.findall(r"__cluster_dims__\((\d+)\) __launch_bounds__\([^)]*\) (\w+)\(", source)}

    def launch(found: re.Match) -> str:
        how, last = (f"launch_clusters({sizes[found[1]]}, ", "") if found[1] in sizes else ("launch(", f", {meet}")
        return f"emulated::{how}{found[2]}, {found[3]}, {found[4]}, [=] {{ {found[1]}({found[5]}); }}{last});"

    source = re.sub(r"([\w:]+(?:<[\w, ]+>)?)<<<(.+?), (\w+), (\w+), \(cudaStream_t\)stream>>>\((.*?)\);", launch, source)
    return f'#include "{emulator() / HEADER.name}"\n{source}'


def without_ptx(source: str) -> str:
    """Removes the device functions that are written in PTX."""
    kept, at = [], 0
    header = HEADER.read_text()
    for match in re.finditer(r"^(?:template <[^\n]*>\n?\s*)?__device__ __forceinline__ \w+ (\w+)\([^\n]*\) \{$", source, flags=re.M):
        end = source.index("\n}\n", match.start()) + 3
        if match.start() < at or not re.search("asm|_ASM", source[match.start() : end]):
            continue
        if not re.search(rf"\b{match[1]}\(", header):
            raise ValueError(f"{match[1]} is PTX without a twin in {HEADER.name}")
        kept.append(source[at : match.start()])
        at = end
    rest = "".join([*kept, source[at:]])
    if re.search(r"\basm\b", rest):
        raise ValueError("PTX outside a device function of its own")
    return rest
