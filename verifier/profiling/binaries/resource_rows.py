"""The part of a profile that needs no counters: the resources of the program's own kernels from compiled code, and each kernel's theoretical
occupancy."""

from __future__ import annotations

from verifier.build.artefacts import Artefacts
from verifier.devices.base import Device
from verifier.jobs import KernelProfile
from verifier.profiling.binaries.cubin import CubinError
from verifier.profiling.binaries.occupancy import occupancy
from verifier.profiling.binaries.resources import KernelResources, kernel_resources
from verifier.profiling.nsight.ncu_import import short


def attach(kernels: list[KernelProfile], artefacts: Artefacts | None, device: Device) -> list[KernelProfile]:
    """Adds `resources` and theoretical occupancy to kernels if they are known without counters."""
    if device.kind != "cuda":
        return kernels
    arch = device.variables("device").get("STITCH_CUDA_ARCH", "")
    compiled = compiled_kernels(artefacts, arch) if artefacts is not None else []
    return [_with_theory(_with_resources(kernel, compiled), arch) for kernel in kernels]


def compiled_kernels(artefacts: Artefacts, arch: str) -> list[KernelResources]:
    """Returns the kernels of every library that the builder produced; an unreadable library contributes none."""
    found: list[KernelResources] = []
    at = 0
    for _, size in artefacts.index:
        try:
            found += kernel_resources(artefacts.data[at : at + size], arch)
        except CubinError:
            pass
        at += size
    return found


def _with_resources(kernel: KernelProfile, compiled: list[KernelResources]) -> KernelProfile:
    """Finds resources by name and, among instances of a template, by the register count that the launch reported."""
    if not kernel.own:
        return kernel
    same = [found for found in compiled if found.name.rsplit("::", 1)[-1] == short(kernel.name)]
    exact = [found for found in same if found.registers == kernel.registers] or same
    if not exact or (len(exact) > 1 and len({_figures(found) for found in exact}) > 1):
        return kernel
    row = exact[0].row()
    return kernel.model_copy(
        update={"resources": {key: value for key, value in row.items() if key != "kernel"} | {"mix_" + k: v for k, v in exact[0].mix.items()}}
    )


def _figures(found: KernelResources) -> tuple[int, ...]:
    return (found.registers, found.stack, found.shared, found.local_load_bytes, found.local_store_bytes, found.instructions)


def _with_theory(kernel: KernelProfile, arch: str) -> KernelProfile:
    if not kernel.block or not kernel.registers or not arch.removeprefix("sm_").isdigit():
        return kernel
    x, y, z = kernel.block
    bound = occupancy(int(arch.removeprefix("sm_")), x * y * z, kernel.registers, kernel.shared_bytes or 0)
    return kernel.model_copy(update={"occupancy_possible": bound.share, "occupancy_limit": bound.by}) if bound is not None else kernel
