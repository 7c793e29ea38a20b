"""Accesses the CUDA driver and NVML through ctypes: device facts, plain allocations, raw IPC handles, clocks. It needs only the driver, not the
toolkit."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

BLOCK = 2 << 20  # the driver's granularity; an allocation of whole blocks shares no block with another, so its IPC handle exposes nothing else
IPC_BYTES = 64
_ATTRIBUTES = {
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "major": 75,
    "minor": 76,
}
_LAZY_PEER_ACCESS = 1


class CudaError(RuntimeError):
    """Raised when a driver call fails. `code` is the CUresult; `name` is the driver's name for it, such as CUDA_ERROR_OUT_OF_MEMORY."""

    def __init__(self, call: str, code: int, name: str):
        super().__init__(f"{call}: {name} ({code})")
        self.code = code
        self.name = name


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * IPC_BYTES)]


@dataclass(frozen=True)
class GpuIdentity:
    """The identity of the GPU that a confined process is started with."""

    uuid: str  # "GPU-81388609-..."
    capability: tuple[int, int]

    @property
    def arch(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"


@dataclass(frozen=True)
class GpuFacts:
    """One GPU as described by its driver. Bandwidth in bytes/s and clock in Hz; both are data-sheet values computed from the device attributes."""

    index: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_hz: float
    l2_bytes: int
    memory_bytes: int
    bandwidth: float | None
    uuid: str  # "GPU-81388609-..."

    @property
    def arch(self) -> str:
        return GpuIdentity(self.uuid, self.capability).arch

    @property
    def model(self) -> str:
        """Returns a key for comparisons; for example, "NVIDIA H200" becomes "h200"."""
        words = [w for w in self.name.lower().split() if w not in ("nvidia", "geforce", "tesla", "graphics", "gpu")]
        return "-".join(words) or "gpu"


@cache
def driver() -> ctypes.CDLL | None:
    """Returns libcuda in its initialised state. Returns null if there is no driver or no GPU (`why_no_driver` gives the reason)."""
    return _load()[0]


def why_no_driver() -> str:
    """Returns a sentence that explains why CUDA cannot be used here, or an empty string if it can."""
    return _load()[1]


@cache
def library() -> ctypes.CDLL | None:
    """Returns libcuda before it is initialised, or null if it is not installed."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@cache
def only_gpu() -> GpuIdentity | None:
    """Returns the GPU of a host that has exactly one. Uses NVML, which takes a few milliseconds, whereas starting the driver takes hundreds. Returns
    null if there are several GPUs, or if CUDA might see the GPU differently (MIG, `CUDA_VISIBLE_DEVICES`)."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") != "0":
        return None
    count, device, major, minor = ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    mig, pending = ctypes.c_uint(), ctypes.c_uint()
    uuid = ctypes.create_string_buffer(96)
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0 or count.value != 1:
            return None
        if nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0 or nvml.nvmlDeviceGetUUID(device, uuid, 96) != 0:
            return None
        if nvml.nvmlDeviceGetMigMode(device, ctypes.byref(mig), ctypes.byref(pending)) == 0 and mig.value:
            return None
        if nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)) != 0:
            return None
    except (OSError, AttributeError):  # no driver, or a driver older than these functions
        return None
    return GpuIdentity(uuid.value.decode(), (major.value, minor.value))


@cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    found = library()
    if found is None:
        return None, "no NVIDIA driver is installed (libcuda.so.1 is not found)"
    found.cuGetErrorName.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    code = found.cuInit(0)
    if code != 0:
        return None, f"the NVIDIA driver does not start: {_error_name(found, code)}"
    count = ctypes.c_int()
    found.cuDeviceGetCount(ctypes.byref(count))
    return (found, "") if count.value else (None, "the NVIDIA driver sees no GPU")


def _error_name(library: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode() if text.value else "unknown error"


def call(function: str, *arguments: Any) -> None:
    """Calls a driver function. Raises `CudaError` if the call fails."""
    library = driver()
    if library is None:
        raise CudaError(function, 100, why_no_driver())
    code = getattr(library, function)(*arguments)
    if code != 0:
        raise CudaError(function, code, _error_name(library, code))


def is_mapped(address: int) -> bool:
    """Returns whether a device address belongs to an allocation that has not been freed."""
    library = driver()
    kind = ctypes.c_uint()
    memory_type = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    return library is not None and library.cuPointerGetAttribute(ctypes.byref(kind), memory_type, ctypes.c_uint64(address)) == 0


def gpu_count() -> int:
    if driver() is None:
        return 0
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def driver_cuda_version() -> str:
    """Returns the latest CUDA version that the driver supports, e.g. "13.0"."""
    version = ctypes.c_int()
    call("cuDriverGetVersion", ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def facts(index: int) -> GpuFacts:
    """Returns the facts about a GPU. Raises `CudaError` if there is no such GPU."""
    device = ctypes.c_int()
    call("cuDeviceGet", ctypes.byref(device), index)
    name = ctypes.create_string_buffer(128)
    call("cuDeviceGetName", name, 128, device)
    memory = ctypes.c_size_t()
    call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    values = {}
    for key, attribute in _ATTRIBUTES.items():
        value = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        values[key] = value.value
    raw = (ctypes.c_ubyte * 16)()
    call("cuDeviceGetUuid_v2", raw, device)
    digits = bytes(raw).hex()
    uuid = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    bandwidth = 2 * values["memory_clock_khz"] * 1e3 * values["memory_bus_bits"] / 8  # two transfers per clock
    return GpuFacts(
        index=index,
        name=name.value.decode("utf-8", "replace"),
        capability=(values["major"], values["minor"]),
        multiprocessors=values["multiprocessors"],
        clock_hz=values["clock_khz"] * 1e3,
        l2_bytes=values["l2_bytes"],
        memory_bytes=memory.value,
        bandwidth=bandwidth or None,
        uuid=uuid,
    )


def use_primary_context(index: int) -> int:
    """Makes the primary context, which torch also uses, current in this thread, and returns its handle."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    return context.value or 0


def allocate(nbytes: int) -> int:
    """Allocates device memory in whole blocks and returns the address."""
    pointer = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(-(-max(nbytes, 1) // BLOCK) * BLOCK))
    return pointer.value


def free(pointer: int) -> None:
    call("cuMemFree_v2", ctypes.c_uint64(pointer))


def export_memory(pointer: int) -> bytes:
    """Returns the 64 bytes that another process needs to map the allocation."""
    handle = _IpcHandle()
    call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
    return bytes(handle.reserved)


def import_memory(handle: bytes) -> int:
    """Maps an allocation that another process exported, and returns its address in this process."""
    if len(handle) != IPC_BYTES:
        raise ValueError(f"an IPC handle has {IPC_BYTES} bytes, not {len(handle)}")
    pointer = ctypes.c_uint64()
    call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), _IpcHandle.from_buffer_copy(handle), ctypes.c_uint(_LAZY_PEER_ACCESS))
    return pointer.value


def close_memory(pointer: int) -> None:
    """Removes this process's mapping of another process's allocation."""
    call("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))


def synchronise() -> None:
    call("cuCtxSynchronize")


def free_memory() -> tuple[int, int]:
    """Returns the free and total bytes of the current context's device."""
    free_bytes, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free_bytes), ctypes.byref(total))
    return free_bytes.value, total.value


class DeviceBytes:
    """Device memory in a form that `torch.as_tensor` accepts without copying: flat uint8. Tensors that use the memory hold this object. If it is
    `freed`, the memory is released together with the last of these tensors."""

    freed = False

    def __init__(self, pointer: int, nbytes: int):
        self.pointer = pointer
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (pointer, False), "version": 3, "strides": None}

    def release(self) -> None:
        free(self.pointer)

    def __del__(self) -> None:
        if self.freed:
            with contextlib.suppress(CudaError):  # if the device has failed, there is nothing left to free
                self.release()


class Nvml:
    """Clocks, throttle reasons and driver version. A value is null if NVML is missing or does not provide it."""

    # Throttle reasons that slow a measurement: power cap, hardware slowdown, temperature, and power brake. Idle (1) and application
    # clocks (2) are not reasons for slower calls.
    SLOWING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
    REASONS = {0x4: "software power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}

    def __init__(self, uuid: str):
        self.library: ctypes.CDLL | None = None
        self.device = ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.device)) == 0:
            self.library = library

    def _number(self, function: str, *before: Any, of: Any = ctypes.c_uint) -> int | None:
        if self.library is None:
            return None
        value = of()
        return value.value if getattr(self.library, function)(self.device, *before, ctypes.byref(value)) == 0 else None

    def minor(self) -> int | None:
        """Returns the number of the device node, that is, of /dev/nvidia<minor>. CUDA may count GPUs in a different order."""
        return self._number("nvmlDeviceGetMinorNumber")

    def number(self) -> tuple[int, int] | None:
        """Returns this GPU's number among all GPUs of the host, including those that this process cannot use, and the total number of GPUs."""
        count = ctypes.c_uint()
        index = self._number("nvmlDeviceGetIndex")
        if index is None or self.library is None or self.library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        return index, count.value

    def sm_clock_mhz(self) -> int | None:
        return self._number("nvmlDeviceGetClockInfo", 1)

    def memory_clock_mhz(self) -> int | None:
        return self._number("nvmlDeviceGetClockInfo", 2)

    def temperature(self) -> int | None:
        return self._number("nvmlDeviceGetTemperature", 0)

    def throttle_reasons(self) -> int | None:
        """Returns the throttle reasons as bits; the bits in `SLOWING` slow a measurement."""
        return self._number("nvmlDeviceGetCurrentClocksThrottleReasons", of=ctypes.c_ulonglong)

    def free_bytes(self) -> int | None:
        """Returns the free memory of the whole device without creating a context on it."""
        memory = (ctypes.c_ulonglong * 3)()  # total, free, used
        if self.library is None or self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)) != 0:
            return None
        return memory[1]

    def driver_version(self) -> str | None:
        if self.library is None:
            return None
        text = ctypes.create_string_buffer(80)
        return text.value.decode() if self.library.nvmlSystemGetDriverVersion(text, 80) == 0 else None
