"""Tests which memory a modified CUDA IPC handle opens: only its own block, or other parties' blocks as well.

    python bench/ipc_handles.py [--device 0] [--limit-seconds 60] [--shared] --out RESULT.json

One process (acting as the judge) allocates blocks, fills each with a unique mark, and exports all but the last. The first handle goes to an attacker;
the second goes to a victim, which keeps it open. The attacker modifies its handle in two ways: it sets each of the 64 bytes to each of the 255 other
values, and it changes the bytes in which the other handles differ from its own, as far as it could know them. Any memory that opens is read. Either
it contains the attacker's own mark, another block's mark or no mark, or the read faults. A fault destroys the CUDA context, so another attacker then
takes over. Everything runs outside the sandbox, as the same user, so an attack that fails here also fails inside it. With `--shared`, all blocks
except the attacker's own are shared by descriptor instead (`verifier/devices/cuda_shared.py`) and never exported. Results are raw: they state how
often each byte could be changed, and what then opened (content marked "unknown" has to be inspected). The exit status is 1 if another block's memory
was read, and 2 if nothing could be tried.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from verifier.devices import cuda_driver, cuda_shared  # noqa: E402

BLOCKS, BLOCK_BYTES = 6, 4 << 20
MARK = 16  # bytes
START_SECONDS, GUESS_SECONDS = 30.0, 5.0  # time limits in seconds: until an attacker has a context, and until it has made a guess
Guess = tuple[str, bytes]  # the kind of change (for counting) and the handle


def write(pointer: int, data: bytes) -> None:
    cuda_driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), data, ctypes.c_size_t(len(data)))


def read(pointer: int, nbytes: int) -> bytes:
    room = ctypes.create_string_buffer(nbytes)
    cuda_driver.call("cuMemcpyDtoH_v2", room, ctypes.c_uint64(pointer), ctypes.c_size_t(nbytes))
    return room.raw


def extent(pointer: int) -> tuple[int, int]:
    """Returns the offset within the allocation and the allocation's size."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    cuda_driver.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
    return pointer - base.value, size.value


def holder(device: int, handle: bytes, pipe: Connection) -> None:
    """Acts as the victim: keeps its block open until it is asked to exit."""
    cuda_driver.use_primary_context(device)
    pointer = cuda_driver.import_memory(handle)
    pipe.send(read(pointer, MARK))
    pipe.recv()


def attacker(device: int, guesses: list[Guess], pipe: Connection) -> None:
    """Sends the result of each guess. After a fault, the process ends together with its context."""
    cuda_driver.use_primary_context(device)
    pipe.send((-1, "", "ready", ""))
    for number, (what, handle) in enumerate(guesses):
        try:
            pointer = cuda_driver.import_memory(handle)
        except cuda_driver.CudaError as error:
            pipe.send((number, what, "refused", str(error)[:120]))
            continue
        try:
            offset, size = extent(pointer)
            found = read(pointer, MARK).hex()
            cuda_driver.close_memory(pointer)
            pipe.send((number, what, "opened", (offset, size, found)))
        except cuda_driver.CudaError as error:
            pipe.send((number, what, "fault", str(error)[:120]))
            return
    pipe.send((len(guesses), "", "end", ""))


def guesses_for(handles: list[bytes]) -> list[Guess]:
    own = handles[0]
    found = [("unchanged", own)]
    for other in handles[1:]:
        differing = [at for at in range(len(own)) if own[at] != other[at]]
        for at in differing:  # all bytes but one that the attacker would need to know
            guess = bytearray(other)
            guess[at] = own[at]
            found.append((f"another's but for byte {at}", bytes(guess)))
    single = []
    for at in range(len(own)):
        for change in range(1, 256):
            guess = bytearray(own)
            guess[at] ^= change
            single.append((f"byte {at}", bytes(guess)))
    random.Random(1).shuffle(single)
    return found + single


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--limit-seconds", type=float, default=60)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    begin = time.monotonic()
    if cuda_driver.driver() is None:
        parser.error(f"no CUDA device: {cuda_driver.why_no_driver()}")
    cuda_driver.use_primary_context(arguments.device)
    if arguments.shared:
        pointers = [cuda_driver.allocate(BLOCK_BYTES), *(cuda_shared.allocate(arguments.device, BLOCK_BYTES)[0] for _ in range(BLOCKS - 1))]
    else:
        pointers = [cuda_driver.allocate(BLOCK_BYTES) for _ in range(BLOCKS)]
    marks = [bytes([16 * (number + 1) + at % 16 for at in range(MARK)]) for number in range(BLOCKS)]
    for pointer, mark in zip(pointers, marks, strict=True):
        write(pointer, mark * (BLOCK_BYTES // MARK))
    handles = [cuda_driver.export_memory(pointer) for pointer in (pointers[:1] if arguments.shared else pointers[:-1])]
    spawn = multiprocessing.get_context("spawn")

    def start(target: Any, *given: Any) -> tuple[Any, Connection]:
        here, there = spawn.Pipe()
        process = spawn.Process(target=target, args=(arguments.device, *given, there), daemon=True)
        process.start()
        there.close()
        return process, here

    victim, to_victim = start(holder, handles[-1] if arguments.shared else handles[1])
    if not to_victim.poll(START_SECONDS) or to_victim.recv() != marks[0 if arguments.shared else 1]:
        print("the victim does not see its own block", file=sys.stderr)
        return 2
    names = {mark.hex(): ("own" if number == 0 else f"block {number}") for number, mark in enumerate(marks)}
    rotated = {mark[at:] + mark[:at]: number for number, mark in enumerate(marks) for at in range(MARK)}  # a handle may open mid-block
    left, counts, opened, faults = guesses_for(handles), Counter[str](), [], []
    whole, idle = len(left), 0
    deadline = begin + arguments.limit_seconds
    while left and idle < 3 and time.monotonic() < deadline:
        process, pipe = start(attacker, left)
        done, ready = 0, False
        while time.monotonic() < deadline and pipe.poll(GUESS_SECONDS if ready else START_SECONDS):
            try:
                number, what, outcome, detail = pipe.recv()
            except EOFError:
                if ready and done < len(left):  # the guess killed the process
                    counts[f"{left[done][0]}: ended the process"] += 1
                    done += 1
                break
            ready = True
            done = number + 1
            if outcome == "opened":
                offset, size, content = detail
                block = rotated.get(bytes.fromhex(content), -1)
                whose = names.get(content) or ("own" if block == 0 else f"block {block}" if block > 0 else "unknown")
                counts[f"{what}: opened {whose}"] += 1
                opened.append({"what": what, "whose": whose, "offset": offset, "size": size, "content": content})
            elif outcome == "fault":
                counts[f"{what}: fault"] += 1
                faults.append({"what": what, "error": detail})
                break  # the attacker has lost its context and exited
            elif outcome == "refused":
                counts[f"{what}: refused"] += 1
        else:
            if ready and done < len(left) and time.monotonic() < deadline:
                counts[f"{left[done][0]}: no answer within {GUESS_SECONDS:g} s"] += 1
                done += 1
        idle = 0 if done > 0 else idle + 1  # if three in a row do not even start, something else is wrong
        process.kill()
        process.join()
        left = left[done:]
    foreign = [row for row in opened if row["whose"].startswith("block")]
    differ = [[at for at in range(len(handles[0])) if handles[0][at] != other[at]] for other in handles[1:]]
    result = {
        "what": "IPC handles of CUDA with bytes changed, outside the sandbox, as the same user",
        "others' memory is shared by": "descriptor" if arguments.shared else "handle",
        "device": cuda_driver.facts(arguments.device).name,
        "driver": cuda_driver.driver_cuda_version(),
        "guesses": whole,
        "tried": whole - len(left),
        "bytes in which handles of one process differ": differ,
        "counts": dict(sorted(counts.items())),
        "opened": opened[:400],
        "faults": faults[:100],
        "foreign": foreign[:100],
        "seconds": round(time.monotonic() - begin, 1),
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    with contextlib.suppress(OSError):
        to_victim.send("end")
    victim.join(10)
    by = Counter(row["whose"] for row in opened)
    print(f"{whole - len(left)} of {whole} guesses: {sum(by.values())} opened ({dict(by)}), {len(faults)} faults; handles differ in bytes {differ}")
    return 1 if foreign else 0


if __name__ == "__main__":
    sys.exit(main())
