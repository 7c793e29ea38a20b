"""Device memory shared through a descriptor: the driver calls, their order, and that nothing is left behind. The driver is a stand-in."""

import ctypes
import os

import pytest
import torch

from verifier.devices import cuda_arena, cuda_shared
from verifier.devices.base import DeviceError
from verifier.devices.cuda_driver import CudaError
from verifier.devices.cuda_shared import SharedBytes
from verifier.startup.starting import judge_environment

BLOCK = 2 << 20


class Driver:
    """Accepts every call except `fails`, and returns numbers as handles."""

    def __init__(self):
        self.calls, self.fails, self.descriptor = [], "", os.open("/dev/null", os.O_RDONLY)

    def call(self, function, *arguments):
        self.calls.append(function)
        if function == self.fails:
            raise CudaError(function, 2, "CUDA_ERROR_OUT_OF_MEMORY")
        if function == "cuMemGetAllocationGranularity":
            properties = arguments[1]._obj
            assert (properties.type, properties.handle_types, properties.location.type, properties.location.id) == (1, 1, 1, 3)
            arguments[0]._obj.value = BLOCK
        elif function in ("cuMemCreate", "cuMemAddressReserve", "cuMemImportFromShareableHandle"):
            arguments[0]._obj.value = {"cuMemCreate": 7, "cuMemAddressReserve": 0x7000_0000, "cuMemImportFromShareableHandle": 8}[function]
        elif function == "cuMemExportToShareableHandle":
            arguments[0]._obj.value = self.descriptor
        if function in ("cuMemCreate", "cuMemAddressReserve", "cuMemUnmap", "cuMemAddressFree"):
            assert arguments[1].value == 2 * BLOCK


@pytest.fixture
def driver(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(cuda_shared, "call", driver.call)
    yield driver
    os.close(driver.descriptor)


def test_the_layout_of_the_drivers_structures():
    """The layout is that of cuda.h on 64-bit Linux."""
    assert ctypes.sizeof(cuda_shared._Properties) == 32 and cuda_shared._Properties.flags.offset == 24
    assert cuda_shared._Properties.location.offset == 8 and ctypes.sizeof(cuda_shared._Access) == 12


def test_memory_is_held_by_its_mapping_and_its_descriptor_alone(driver, monkeypatch):
    pointer, size, descriptor = cuda_shared.allocate(3, BLOCK + 1)
    assert (pointer, size, descriptor) == (0x7000_0000, 2 * BLOCK, driver.descriptor) and not os.get_inheritable(descriptor)
    assert driver.calls == [
        "cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemExportToShareableHandle",
        "cuMemRelease",
    ]  # fmt: skip
    driver.calls.clear()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: driver.calls.append(f"wait for {device}"))
    SharedBytes(pointer, BLOCK + 1, size, 3).release()
    assert driver.calls == ["wait for 3", "cuMemUnmap", "cuMemAddressFree"]


def test_a_party_maps_it_and_lets_go(driver):
    assert cuda_shared.attach(0, driver.descriptor, 2 * BLOCK) == 0x7000_0000
    assert driver.calls == ["cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemRelease"]
    os.fstat(driver.descriptor)  # the caller is responsible for closing it


@pytest.mark.parametrize("fails", ["cuMemMap", "cuMemSetAccess", "cuMemExportToShareableHandle"])
def test_what_fails_leaves_nothing(driver, fails):
    driver.fails = fails
    with pytest.raises(CudaError):
        cuda_shared.allocate(3, 2 * BLOCK)
    assert driver.calls.count("cuMemRelease") == driver.calls.count("cuMemAddressFree") == 1
    assert driver.calls.count("cuMemUnmap") == (fails != "cuMemMap")


@pytest.mark.parametrize(("chosen", "expected"), [(None, "descriptor"), ("", "descriptor"), ("handle", "handle"), ("fd", None)])
def test_the_way_of_sharing_reaches_a_judge_and_is_checked(monkeypatch, chosen, expected):
    monkeypatch.delenv("STITCH_SHARING", raising=False)
    if chosen is not None:
        monkeypatch.setenv("STITCH_SHARING", chosen)
    assert judge_environment().get("STITCH_SHARING") == chosen
    cuda_arena.sharing.cache_clear()
    try:
        if expected is None:
            with pytest.raises(DeviceError, match="STITCH_SHARING=fd: it is one of descriptor, handle"):
                cuda_arena.sharing()
        else:
            assert cuda_arena.sharing() == expected
    finally:
        cuda_arena.sharing.cache_clear()


def test_tools_in_unusual_places_are_known_to_a_judge(monkeypatch):
    for name in ("STITCH_NSYS", "STITCH_NSYS_LIBRARIES", "STITCH_NCU", "STITCH_COMPUTE_SANITIZER"):
        monkeypatch.setenv(name, "/opt/tool")
        assert judge_environment()[name] == "/opt/tool"


def test_a_driver_that_shares_none_is_no_lack_of_room(driver, monkeypatch):
    monkeypatch.setattr(cuda_arena, "sharing", lambda: "descriptor")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def refused(device, nbytes):
        raise CudaError("cuMemCreate", 801, "CUDA_ERROR_NOT_SUPPORTED")

    monkeypatch.setattr(cuda_shared, "allocate", refused)
    with pytest.raises(DeviceError, match="is not available here .*NOT_SUPPORTED.*STITCH_SHARING=handle") as raised:
        cuda_arena.arena(4096, "cuda:0")
    assert type(raised.value) is DeviceError
