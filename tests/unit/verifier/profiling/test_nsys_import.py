import shutil
import sqlite3
from pathlib import Path

import pytest

from verifier.profiling.digest import digest
from verifier.profiling.nsys_import import ImportProblem, import_nsys
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
    assert sum(kernel.calls for kernel in figures.kernels) == 90  # the 91st, which drew the weights, ran before
    assert sum(kernel.share for kernel in figures.kernels) == pytest.approx(1.0)
    assert 0 < figures.device_busy < 0.01  # the first range holds half a second of cuDNN's set-up
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
    """The same correlation id in another process is another launch."""
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


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, EXPORT.read_bytes()[:5000]])
def test_a_damaged_file_is_a_named_problem(tmp_path, content):
    (tmp_path / "bad.sqlite").write_bytes(content)
    with pytest.raises(ImportProblem):
        import_nsys(tmp_path / "bad.sqlite")
