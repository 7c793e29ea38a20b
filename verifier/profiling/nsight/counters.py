"""The hardware counters that the diagnosis reads, by Nsight Compute's raw names, and how to read them from a kernel's metrics.

`.sum` counters are per launch, averaged if a kernel was launched several times. All counters follow NVIDIA's definitions: Nsight Compute
documentation, "Metrics Reference" and "Profiling Guide" (stall reasons, memory tables, occupancy).
"""

from __future__ import annotations

from verifier.jobs import KernelProfile

_STALLS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard", "math_pipe_throttle"),
    *("membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait"),
)
STALL = {name: f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio" for name in _STALLS}
PIPE = {name: f"sm__inst_executed_pipe_{name}.avg.pct_of_peak_sustained_active" for name in ("alu", "fma", "fp64", "lsu", "xu")}

TIME = "gpu__time_duration.sum"
DRAM_READ = "dram__bytes_read.sum"
DRAM_WRITE = "dram__bytes_write.sum"
DRAM_SHARE = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
L2_SHARE = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1_SHARE = "l1tex__throughput.avg.pct_of_peak_sustained_active"
SM_SHARE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
L2_HITS = "lts__t_sector_hit_rate.pct"
L1_HITS = "l1tex__t_sector_hit_rate.pct"
LSU_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"
GLOBAL_SECTORS = {op: f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")}
GLOBAL_REQUESTS = {op: f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st", "red", "atom")}
BYTES_PER_SECTOR = {op: f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio" for op in ("ld", "st")}
LOCAL_INSTRUCTIONS = {op: f"smsp__sass_inst_executed_op_local_{op}.sum" for op in ("ld", "st")}
LOCAL_SECTORS = {op: f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")}
SHARED_WAVEFRONTS = {op: f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom")}
BANK_CONFLICTS = {op: f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom")}
SHARED_INSTRUCTIONS = {op: f"smsp__sass_inst_executed_op_shared_{op}.sum" for op in ("ld", "st")}
SHARED_ATOMICS = "smsp__inst_executed_op_shared_atom.sum"
ATOMIC_SECTORS = {op: f"lts__t_sectors_srcunit_tex_op_{op}.sum" for op in ("red", "atom")}
ATOMIC_UNITS = "lts__d_atomic_input_cycles_active.avg.pct_of_peak_sustained_elapsed"
ACTIVE_THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"
UNPREDICATED_THREADS = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
INSTRUCTIONS = "smsp__inst_executed.sum"
ISSUE_SHARE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
TENSOR_SHARE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
FP64_SHARE = "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active"
THREAD_OPS = {
    op: f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "integer", "conversion")
}
SM_CYCLES = {what: f"sm__cycles_active.{what}" for what in ("avg", "max", "min")}
SM_CYCLES_ELAPSED = "sm__cycles_elapsed.max"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
OCCUPANCY_POSSIBLE = "sm__maximum_warps_per_active_cycle_pct"
OCCUPANCY_LIMIT = {what: f"launch__occupancy_limit_{what}" for what in ("registers", "shared_mem", "warps", "blocks")}
WAVES = "launch__waves_per_multiprocessor"
GRID = "launch__grid_size"
BLOCK = "launch__block_size"
REGISTERS = "launch__registers_per_thread"
SHARED_BYTES = "launch__shared_mem_per_block"

METRICS: tuple[str, ...] = (
    *(TIME, DRAM_READ, DRAM_WRITE, DRAM_SHARE, L2_SHARE, L1_SHARE, SM_SHARE, L2_HITS, L1_HITS, LSU_WAVEFRONTS),
    *GLOBAL_SECTORS.values(),
    *GLOBAL_REQUESTS.values(),
    *BYTES_PER_SECTOR.values(),
    *LOCAL_INSTRUCTIONS.values(),
    *LOCAL_SECTORS.values(),
    *SHARED_WAVEFRONTS.values(),
    *BANK_CONFLICTS.values(),
    *SHARED_INSTRUCTIONS.values(),
    *(SHARED_ATOMICS, *ATOMIC_SECTORS.values(), ATOMIC_UNITS),
    *(ACTIVE_THREADS, UNPREDICATED_THREADS, INSTRUCTIONS, ISSUE_SHARE, TENSOR_SHARE, FP64_SHARE),
    *PIPE.values(),
    *THREAD_OPS.values(),
    *(*SM_CYCLES.values(), SM_CYCLES_ELAPSED, OCCUPANCY, OCCUPANCY_POSSIBLE, *OCCUPANCY_LIMIT.values()),
    *(WAVES, GRID, BLOCK, REGISTERS, SHARED_BYTES),
    *STALL.values(),
)


def read(kernel: KernelProfile, name: str) -> float | None:
    """Returns a counter of a kernel; null if it was not collected."""
    value = kernel.metrics.get(name)
    return float(value) if value is not None and value == value else None


def total(kernel: KernelProfile, names: dict[str, str], *which: str) -> float | None:
    """Returns the sum of the counters of one kind; null if none was collected."""
    values = [read(kernel, names[name]) for name in which or names]
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def stall_shares(kernel: KernelProfile) -> dict[str, float]:
    """Returns the shares of a warp's time between two issues by stall reason; `selected` is the issue itself."""
    ratios = {name: read(kernel, metric) for name, metric in STALL.items()}
    known = {name: value for name, value in ratios.items() if value is not None}
    whole = sum(known.values())
    return {name: value / whole for name, value in known.items()} if whole > 0 else {}
