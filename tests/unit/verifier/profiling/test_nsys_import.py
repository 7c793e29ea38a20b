import shutil
import sqlite3
from pathlib import Path

import pytest

from verifier.profiling.digest import digest
from verifier.profiling.nsight.nsys_import import ImportProblem, import_nsys
from verifier.profiling.timeline import KINDS, Timeline

TABLES_OF_THE_EXPORT = {
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "StringIds",
    "TARGET_INFO_GPU",
    "DIAGNOSTIC_EVENT",
    "META_DATA_EXPORT",
}
EXPORT = Path(__file__).parents[3] / "data" / "nsys-convnet-h200.sqlite"


@pytest.fixture
def export(tmp_path) -> Path:
    return Path(shutil.copyfile(EXPORT, tmp_path / "report.sqlite"))


def change(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)
    database.close()


def of_kind(timeline: Timeline, kind: str) -> list[int]:
    return [i for i, k in enumerate(timeline.columns["kind"].tolist()) if k == KINDS.index(kind)]


def test_a_real_export_becomes_a_timeline():
    timeline, version = import_nsys(EXPORT)
    assert version == "2025.3.2.0"
    assert (timeline.tool, timeline.device) == ("nsys", "NVIDIA H200")
    assert [row.name for row in timeline.rows] == ["Stream 7", "Stream 13", "NVTX, thread 1", "CUDA API, thread 1", "Synchronisation"]
    assert len(of_kind(timeline, "kernel")) == 91
    assert len(of_kind(timeline, "memcpy")) == 4
    assert len(of_kind(timeline, "memset")) == 12
    assert [timeline.names[timeline.columns["name"][i]] for i in of_kind(timeline, "nvtx")] == ["iter"] * 10


def test_a_kernel_carries_its_launch_and_shares_a_correlation_with_it():
    timeline, _ = import_nsys(EXPORT)
    kernel = next(i for i in of_kind(timeline, "kernel") if timeline.names[timeline.columns["name"][i]].startswith("sm90_xmma_fprop"))
    detail = timeline.details[timeline.columns["detail"][kernel] - 1]
    assert (detail["grid"], detail["registers"], detail["shared_dynamic"]) == ([30, 4, 1], 168, 231424)
    launches = [i for i in of_kind(timeline, "api") if timeline.columns["correlation"][i] == timeline.columns["correlation"][kernel]]
    assert [timeline.names[timeline.columns["name"][i]] for i in launches] == ["cudaLaunchKernelExC"]


def test_the_digest_counts_what_the_iterations_launched():
    timeline, _ = import_nsys(EXPORT)
    figures = digest(timeline, lambda name: "elementwise_kernel" in name and "vectorized" not in name, on_device=True)
    assert figures.iterations == 10
    assert figures.launches_per_iteration == 9.0
    assert sum(kernel.calls for kernel in figures.kernels) == 90  # the 91st, which drew the weights, ran earlier
    assert sum(kernel.share for kernel in figures.kernels) == pytest.approx(1.0)
    assert 0 < figures.device_busy < 0.01  # the first range contains half a second of cuDNN's initialisation
    assert 0 < figures.own_share < 1


def test_cropped_to_the_iterations_the_timeline_keeps_their_kernels():
    timeline, _ = import_nsys(EXPORT)
    figures = digest(timeline, lambda name: False, on_device=True)
    cropped = timeline.crop(*figures.window)
    assert len(of_kind(cropped, "kernel")) == 90
    assert digest(cropped, lambda name: False, on_device=True).launches_per_iteration == 9.0


@pytest.mark.parametrize(
    "table",
    [
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "NVTX_EVENTS",
        "StringIds",
        "TARGET_INFO_GPU",
        "DIAGNOSTIC_EVENT",
        "META_DATA_EXPORT",
    ],
)
@pytest.mark.parametrize("how", ["DROP TABLE", "DELETE FROM"])
def test_a_table_may_be_missing_or_empty(export, table, how):
    change(export, f"{how} {table}")
    timeline, _ = import_nsys(export)
    assert timeline.events > 0
    assert digest(timeline, lambda name: False, on_device=True).wall_us_per_iteration > 0


def test_columns_of_another_schema_version_may_be_missing(export):
    change(
        export,
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN mangledName",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION DROP COLUMN syncType",
        "ALTER TABLE NVTX_EVENTS DROP COLUMN domainId",
    )
    timeline, _ = import_nsys(export)
    assert len(of_kind(timeline, "kernel")) == 91


def test_registered_nvtx_strings_are_found_by_their_id(export):
    change(export, "INSERT INTO StringIds VALUES (900, 'iter')", "UPDATE NVTX_EVENTS SET text = NULL, textId = 900")
    timeline, _ = import_nsys(export)
    assert [timeline.names[timeline.columns["name"][i]] for i in of_kind(timeline, "nvtx")] == ["iter"] * 10


def test_correlation_is_within_the_process(export):
    """The same correlation id in another process belongs to a different launch."""
    change(export, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = globalPid + (1 << 24)")
    timeline, _ = import_nsys(export)
    correlations = timeline.columns["correlation"]
    api = {correlations[i] for i in of_kind(timeline, "api")}
    assert not any(correlations[i] in api for i in of_kind(timeline, "kernel"))


def test_secrets_of_the_environment_are_not_imported(export):
    change(
        export,
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'Local', 'EnvVars', 1, 'TOKEN=plantedsecret')",
        "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_HOST', 'plantedsecret')",
        "INSERT INTO StringIds VALUES (901, 'plantedsecret --password')",
        "INSERT INTO DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text) VALUES (1, 1, 1, 2, 'cannot write /home/plantedsecret/x')",
    )
    timeline, _ = import_nsys(export)
    assert timeline.warnings == ["Nsight Systems: cannot write (path)"]
    assert b"plantedsecret" not in timeline.to_bytes()


@pytest.mark.parametrize(
    ("statements", "note"),
    [
        (["DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL"], "The export has no table CUPTI_ACTIVITY_KIND_KERNEL: no kernels are shown"),
        (["DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL"], "The table CUPTI_ACTIVITY_KIND_KERNEL is empty: no kernels are shown"),
        (["DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME"], "no table CUPTI_ACTIVITY_KIND_RUNTIME: no CUDA calls are shown; launch latencies"),
        (["DELETE FROM NVTX_EVENTS"], "The table NVTX_EVENTS is empty: no ranges are shown"),
        (["DELETE FROM StringIds"], "The table StringIds is empty: kernels and calls have no names"),
        (["DROP TABLE StringIds"], "The export has no table StringIds: kernels and calls have no names"),
        (
            ["ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN start"],
            "CUPTI_ACTIVITY_KIND_KERNEL (schema version 3.20.3) has no column start: its rows cannot be placed in time and are left out.",
        ),
        (
            ["ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN correlationId"],
            "has no column correlationId: kernels cannot be tied to their launches.",
        ),
        (["ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId"], "has no column streamId: kernels of all streams share one row."),
        (["ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN nameId"], "has no column nameId: CUDA calls have no names."),
        (
            ['UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = -1 WHERE rowid % 2 = 0'],
            "45 of 91 rows of CUPTI_ACTIVITY_KIND_KERNEL have no valid times and are left out.",
        ),
        (["UPDATE META_DATA_EXPORT SET value = '4.0.1' WHERE name = 'EXPORT_SCHEMA_VERSION'"], "The export has schema version 4.0.1, newer than"),
        (['UPDATE NVTX_EVENTS SET "end" = NULL WHERE rowid = 10'], "1 NVTX ranges were never closed"),
    ],
)
def test_what_an_export_lacks_is_told_by_name(export, statements, note):
    change(export, *statements)
    timeline, _ = import_nsys(export)
    assert [text for text in timeline.warnings if note in text], timeline.warnings
    assert Timeline.from_bytes(timeline.to_bytes()).warnings == timeline.warnings


def test_a_whole_export_has_nothing_to_tell():
    assert import_nsys(EXPORT)[0].warnings == []


def test_kernels_of_graphs_recorded_as_a_whole_are_not_missed(export):
    change(
        export,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS SELECT *, 3 AS graphId, 4 AS graphExecId FROM CUPTI_ACTIVITY_KIND_KERNEL",
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL",
    )
    timeline, _ = import_nsys(export)
    assert timeline.warnings == []
    assert len(of_kind(timeline, "graph")) == 91


def test_the_gpus_table_of_early_2021(export):
    """Before mid-2021, GPUs were listed in TARGET_INFO_CUDA_GPU, by deviceId."""
    change(
        export,
        "DROP TABLE TARGET_INFO_GPU",
        "DROP TABLE TARGET_INFO_CUDA_DEVICE",
        "CREATE TABLE TARGET_INFO_CUDA_GPU (deviceId INT, name TEXT)",
        "INSERT INTO TARGET_INFO_CUDA_GPU VALUES (0, 'NVIDIA A100')",
    )
    assert import_nsys(export)[0].device == "NVIDIA A100"


def test_the_older_column_of_synchronisations_and_text_in_the_place_of_ids(export):
    change(
        export,
        "ALTER TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION DROP COLUMN syncType",
        "UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET deprecatedSyncType = 3",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 'plain_name', correlationId = 'x'",
    )
    timeline, _ = import_nsys(export)
    assert {timeline.names[timeline.columns["name"][i]] for i in of_kind(timeline, "sync")} == {"Stream sync"}
    kernels = of_kind(timeline, "kernel")
    assert {timeline.names[timeline.columns["name"][i]] for i in kernels} == {"plain_name"}
    assert not timeline.columns["correlation"][kernels].any()


def test_every_table_may_be_gone_at_once(export):
    with sqlite3.connect(export) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'META_DATA_EXPORT'")]
    database.close()
    change(export, *(f'DROP TABLE "{table}"' for table in tables))
    timeline, version = import_nsys(export)
    assert (timeline.events, version) == (0, "2025.3.2.0")
    assert len(timeline.warnings) == 4
    assert Timeline.from_bytes(timeline.to_bytes()).events == 0


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, EXPORT.read_bytes()[:5000]])
def test_a_damaged_file_is_a_named_problem(tmp_path, content):
    (tmp_path / "bad.sqlite").write_bytes(content)
    with pytest.raises(ImportProblem):
        import_nsys(tmp_path / "bad.sqlite")


def with_counters(path: Path) -> None:
    change(
        path,
        "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT)",
        "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (256, 1, 'GPU Metrics', 1, 'SMs Active [Throughput %]'), (256, 1, 'GPU Metrics', 2, "
        "'DRAM Read Bandwidth [Throughput %]'), (256, 1, 'GPU Metrics', 3, 'PCIe RX Throughput [Throughput %]')",
        "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER NOT NULL)",
        "INSERT INTO GPU_METRICS SELECT start, 256, 1 + (rowid % 3), rowid % 100 FROM CUPTI_ACTIVITY_KIND_KERNEL",
        "INSERT INTO GPU_METRICS VALUES (NULL, 256, 1, 5)",
    )


def test_sampled_counters_of_multiprocessors_and_memory_come_along(export):
    with_counters(export)
    timeline, _ = import_nsys(export)
    assert {(counter.name, counter.unit, counter.group) for counter in timeline.counters} == {
        ("SMs Active", "%", "NVIDIA H200"),
        ("DRAM Read Bandwidth", "%", "NVIDIA H200"),
    }
    assert sum(len(counter.times) for counter in timeline.counters) > 55
    assert any("1 hardware counters" in text for text in timeline.warnings)
    again = Timeline.from_bytes(timeline.to_bytes())
    first, stored = timeline.counters[0], again.counters[0]
    assert stored.values.tolist() == first.values.tolist()
    assert (stored.times - stored.times[0]).tolist() == (first.times - first.times[0]).tolist()
    middle = float(first.times[len(first.times) // 2])
    assert 0 < len(timeline.crop(0, middle).counters[0].times) < len(first.times)
    assert not import_nsys(EXPORT)[0].counters


def test_ranges_of_operators_and_modules_have_rows_of_their_own(export):
    change(
        export,
        "UPDATE NVTX_EVENTS SET text = 'aten::relu, seq = 2, op_id = 7', textId = NULL WHERE rowid % 3 = 0",
        "UPDATE NVTX_EVENTS SET text = 'module: 0 (Conv2d)', textId = NULL WHERE rowid % 3 = 1",
    )
    timeline, _ = import_nsys(export)
    assert {row.name for row in timeline.rows if row.kind == "nvtx"} == {"NVTX, thread 1", "Modules, thread 1", "Operators, thread 1"}
    assert {timeline.names[timeline.columns["name"][i]] for i in of_kind(timeline, "operator")} == {"aten::relu"}
    assert {timeline.names[timeline.columns["name"][i]] for i in of_kind(timeline, "module")} == {"0 (Conv2d)"}
