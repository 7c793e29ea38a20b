"""Describes a device to a model: rates, caches, clusters, and how code for it is built."""

from __future__ import annotations

from agents.floor import size
from compiler import DeviceFigures
from verifier.build.raw import CUDA_FLAGS

GPCS, GPC_UNITS = 8, 18  # graphics processing clusters of a GH100, and multiprocessors of a complete one (NVIDIA H100 whitepaper, figure 6)
CLUSTER_BLOCKS = (2, 4, 8, 16)


def cache_rate(figures: DeviceFigures) -> str:
    """Returns the measured rate of the cache, or "" if it is below the memory's: the copy was then too short to reach the cache's own rate."""
    return f", {figures.cache_gbs:,.0f} GB/s by a plain copy within it" if figures.cache_gbs > figures.bandwidth_gbs else ""


def clock_text(figures: DeviceFigures) -> str:
    return f"; at most {figures.clock_mhz:,.0f} MHz" if figures.clock_mhz else ""


def device_text(figures: DeviceFigures) -> str:
    cpu = figures.kind == "cpu"
    capability = " of compute capability {}.{}".format(*figures.capability) if figures.capability else ""
    return "\n".join(
        [
            f"- {figures.name}, {figures.units} {'threads' if cpu else 'multiprocessors'}{capability}",
            f"- memory: {figures.bandwidth_gbs:.0f} GB/s, reads and writes together",
            f"- arithmetic: {figures.fp32_gflops:.0f} GFLOP/s on fp32 units{tensor_cores(figures)}",
            f"- cache shared by all: {size(figures.cache_bytes)}{cache_rate(figures)}; "
            + (
                f"L2 of a core: {size(figures.unit_cache_bytes)}"
                if cpu
                else f"shared memory: at most {figures.unit_cache_bytes:,} bytes a block; a multiprocessor reads 128 bytes of it a clock "
                f"(32 banks{clock_text(figures)})"
            ),
            f"- one {'parallel region' if cpu else 'kernel launch'}: about {figures.launch_us:g} us",
            *(
                [
                    "- a multiprocessor has 65,536 registers; a block at most 1,024 threads, and 48 kB of shared memory unless cudaFuncSetAttribute "
                    f"raises that{clusters(figures)}"
                ]
                if not cpu
                else []
            ),
            *([] if cpu else [f"- device code is built by nvcc {' '.join(CUDA_FLAGS[:2])} -arch={arch_text(figures)}"]),
        ]
    )


def clusters(figures: DeviceFigures) -> str:
    """Describes thread block clusters if the device supports them, with the maximum number that its processing clusters can hold."""
    if figures.capability is None or figures.capability < (9, 0):
        return ""
    said = "; clusters have up to 8 blocks (16 where the kernel allows sizes that are not portable), which read each other's shared memory"
    if figures.capability != (9, 0):
        return said
    if figures.clusters:
        return f"{said}. {measured_clusters(figures)}"
    most = ", ".join(f"{min(GPCS * (GPC_UNITS // blocks), figures.units // blocks)} of {blocks}" for blocks in CLUSTER_BLOCKS)
    return (
        f"{said}. Clusters resident at once, where a block takes a whole multiprocessor: at most {most} blocks, because a cluster lies within one of "
        f"{GPCS} groups of at most {GPC_UNITS} multiprocessors (NVIDIA's H100 whitepaper); how many are enabled in each group differs from device to "
        "device, so let the host ask cudaOccupancyMaxActiveClusters and launch no more where clusters wait for each other"
    )


def measured_clusters(figures: DeviceFigures) -> str:
    """States how many clusters this device can hold at once, and compares the cost of an exchange within them with that of one through L2."""
    counts = ", ".join(f"{count} of {size}" for size, count in figures.clusters)
    said = f"Clusters resident at once on this device, where a block takes a whole multiprocessor: {counts} blocks"
    if not figures.cluster_us:
        return said
    costs = ", ".join(f"{us:.2g} us of {size}" for size, us in figures.cluster_us)
    said += f"; an exchange of one value a thread through shared memory, with the barrier of a cluster, takes {costs}"
    if figures.grid_us:
        said += f" (through L2, with a barrier of one block on each multiprocessor: {figures.grid_us:.2g} us)"
    if figures.cluster_read_gbs:
        said += f"; all blocks together read each other's shared memory at {figures.cluster_read_gbs:,.0f} GB/s"
    return said


def tensor_cores(figures: DeviceFigures) -> str:
    """Returns the throughput of matrix products on tensor cores, or "" if the device has none or the rates are unknown."""
    said = []
    if figures.tf32_gflops > figures.fp32_gflops:
        said.append(f"TF32 {figures.tf32_gflops:.0f} GFLOP/s, and so {figures.gflops('3xtf32'):.0f} where an fp32 product is three of TF32")
    if figures.half_gflops > figures.fp32_gflops:
        said.append(f"bf16 and fp16 {figures.half_gflops:.0f} GFLOP/s")
    if figures.half_gflops > figures.fp32_gflops:
        said.append(f"an fp32 product as six of bf16 (three parts an operand) {figures.half_gflops / 6:.0f}")
        said.append(
            f"as three of bf16, where one operand is exact in bf16 or 16 bits of each are enough, "
            f"or of fp16, after exact scaling by powers of two (22 bits of each), {figures.half_gflops / 3:.0f}"
        )
    reached = "dense, as a large product reaches them"
    if figures.capability is not None and figures.capability[0] == 9:
        # 194 and 164 TFLOP/s of TF32 at 60 and 51 % of the pipe on an H100; a mean of 63 % of the peak in arXiv 2402.13499, section 4
        reached += ", by wgmma; mma.sync reaches about four fifths of them at most, with its pipe 100 % busy"
    return f"; products on tensor cores: {'; '.join(said)} ({reached})" if said else ""


def arch_text(figures: DeviceFigures) -> str:
    """Returns the target architecture for device code, and the features that it lacks."""
    if figures.capability is None:
        return "native, without fast-math; further flags are the third argument of `stitch_build`"
    major, minor = figures.capability
    plain = f"sm_{major}{minor}, without fast-math (`-use_fast_math` is off: `expf`, division and square root are the accurate ones)"
    if major < 9:
        return f"{plain}; further flags are the third argument of `stitch_build`"
    name = f"{major}{minor}a"
    return (
        f"{plain}. That is not `sm_{name}`: for instructions of `sm_{name}` alone (such as wgmma) pass "
        f'`["-gencode=arch=compute_{name},code=sm_{name}"]` as the third argument of `stitch_build`, and put them behind '
        f"`#if defined(__CUDA_ARCH_FEAT_SM{major}{minor}_ALL)`, since the code is compiled for plain compute_{major}{minor} as well"
    )
