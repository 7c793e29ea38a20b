"""The contents of requests: evidence with its location, a small number of figures, and the tunable parameters."""

from __future__ import annotations

from agent_fakes import TASK, report

from agents.diagnosis import Diagnosis, Evidence
from agents.roles import of_diagnosis, of_kernels, of_reference, source_knobs, steps
from agents.roles.edits import helper
from agents.roles.evidence import build_excerpt, failure_text
from agents.roles.situation import Attempt, Edit, Plan, Situation
from agents.settings import Settings
from verifier.jobs import KernelProfile, Profile, VerifyJob
from verifier.report import BuildInfo, Finding, Stage, Trial
from verifier.source import Problem

SOURCE = f"import torch\n\n{helper()}\n\nSOURCE = 'int x'\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


def failed(status: str, message: str = "it went wrong", **more):
    return report(VerifyJob(task_source=TASK, program_source=SOURCE), status, message=message).model_copy(update=more)


def test_a_build_failure_shows_the_compilers_errors_and_the_lines():
    line = SOURCE[: SOURCE.index("SOURCE =")].count("\n") + 1
    noise = [f"In file included from header {n}" for n in range(200)]
    output = "\n".join([*noise, "kernels.cpp:3:5: error: expected ';'", "    3 |     int x", "      |          ^", *noise])
    given = failed(
        "build_failed", problems=[Problem(line=line, message="expected ';'")], build=BuildInfo(seconds=1, cached=False, compiler_output=output)
    )
    text = failure_text(given, SOURCE)
    assert "Status: build_failed" in text and f"line {line}: expected ';'" in text
    assert "kernels.cpp:3:5: error: expected ';'" in text and "header 150" not in text
    assert f"> {line}: SOURCE = 'int x'" in text and "subprocess" not in text, "the build helper is not shown"
    assert len(build_excerpt(output).splitlines()) <= 40 and build_excerpt("one\ntwo") == "one\ntwo"


def test_a_wrong_result_shows_the_trial_its_error_and_what_passed():
    trials = [
        Trial(name="task inputs 1", seed=1, ok=True),
        Trial(name="negative", seed=2, ok=False, output="out[0]", error=0.5, bound=1e-6, norm="max |a-b| / rms(b)", detail="at [0, 3]: 1.0 for 2.0"),
    ]
    text = failure_text(failed("wrong_result", trials=trials), SOURCE)
    assert "trial 'negative' failed at out[0]: error 0.5, bound 1e-06" in text and "at [0, 3]: 1.0 for 2.0" in text
    assert "1 other trial passed: task inputs 1" in text


def test_a_rejection_shows_the_finding_with_its_line():
    found = [
        Finding(rule="patching", severity="refuse", message="assigns to torch.matmul", line=1),
        Finding(rule="timer", severity="note", message="x"),
    ]
    text = failure_text(
        failed("rejected", findings=found, stages=[Stage(name="static", status="failed", seconds=0, detail="refused: patching")]), SOURCE
    )
    assert "integrity finding patching, refuse (line 1): assigns to torch.matmul" in text and "> 1: import torch" in text
    assert "stage static failed: refused: patching" in text


def test_a_diagnosis_has_four_figures_at_most():
    evidence = [Evidence(figure=f"figure {n}", value=n, unit="%", means="because") for n in range(9)]
    text = of_diagnosis.diagnosis_text(Diagnosis(bottleneck="memory", text="Slow.", evidence=evidence, grade="counters"))
    assert text.count("figure") == 4 and text.startswith("Class: memory (known from counters). Slow.") and "- figure 3: 3 % (because)" in text


def test_the_profile_of_a_reference():
    kernels = [
        KernelProfile(name=f"void at::native::kernel_{n}<float, Functor<int>>(float*, int)", own=False, calls=10, total_us=10, mean_us=1, share=0.1)
        for n in range(10)
    ]
    profile = Profile(
        task="t", program=None, tool="nsys", iterations=5, wall_us_per_iteration=321.4, device_busy=0.42, launches_per_iteration=20, gap_us_p50=3.2,
        kernels=kernels,
    )  # fmt: skip
    text = of_reference.profile_text(profile)
    assert "By Nsight Systems, which slows the host" in text, "the time of a call has one figure, and that is not the profiler's"
    assert (
        "20 launches a call. The device works 42 % of the time. Median gap between kernels under the profiler: 3.2 us." in text and "321" not in text
    )
    assert "- 10 %: at::native::kernel_0<float, Functor<int>>, 2 a call, 1.0 us each" in text and "20 % in 2 more" in text
    assert "could not be profiled" in of_reference.profile_text(None)


def test_what_compiler_and_hardware_say():
    kernel = KernelProfile(
        name="fused_kernel(float*)", own=True, calls=5, total_us=50, mean_us=10, share=0.8, grid=(64, 1, 1), block=(256, 1, 1), registers=96,
        shared_bytes=4096, occupancy=0.31, occupancy_possible=0.5, occupancy_limit="registers", stalls={"long_scoreboard": 0.6, "barrier": 0.2},
        resources={"spill_load_bytes": 12}, metrics={"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 41.0, "l1tex__something.sum": 1e9},
    )  # fmt: skip
    profile = Profile(task="t", program="p", tool="nsys", iterations=5, wall_us_per_iteration=60, kernels=[kernel])
    text = of_kernels.resources_text(Attempt(1, None, Edit(SOURCE, "", "", ()), profile=profile))
    for said in (
        "96 registers",
        "12 bytes loaded by a thread",
        "4096 bytes of shared memory a block",
        "10.0 us a launch, 1 launch a call, 80 % of the device's time",
        "occupancy 31 % of 50 % possible (registers bound what is possible)",
        "long scoreboard 60 %",
        "DRAM 41 %, L2 not measured",
    ):
        assert said in text
    assert "l1tex" not in text, "no raw counters"


def test_knobs_of_a_source_that_a_model_wrote():
    source = (
        "constexpr int BLOCK_SIZE = 256;\n#define ROWS_PER_BLOCK 4\nconst int TILE = 48;\nconstexpr int FEATURES = 1024;\nNUM_WARPS = 8\n"
        "static constexpr unsigned int kUnroll_FACTOR = 2;\nint x = BLOCK_SIZE;\n"
    )
    found = {knob.name: (knob.value, knob.values) for knob in source_knobs.knobs(source)}
    assert found["BLOCK_SIZE"] == (256, (64, 128, 256, 512, 1024)) and found["ROWS_PER_BLOCK"] == (4, (1, 2, 4, 8, 16))
    assert "NUM_WARPS" in found and "FEATURES" not in found and "TILE" not in found
    tuned = source_knobs.tuned(source, {"BLOCK_SIZE": 512, "ROWS_PER_BLOCK": 2})
    assert "BLOCK_SIZE = 512;" in tuned and "ROWS_PER_BLOCK 2\n" in tuned and "int x = BLOCK_SIZE;" in tuned
    assert source_knobs.tuned(source, {"NOWHERE": 2}) is None


def step(name: str, space: str = "own kernel", **more) -> dict:
    return {"id": name, "title": f"title {name}", "space": space, "operators": [name], "strategies": [], **more}


def test_steps_that_have_to_be_coded():
    plan = Plan({"steps": [step("a"), step("b", "pytorch"), step("c", "library"), step("d", "library", strategies=["fuse-matmul-tail"])]}, ())
    assert [s["id"] for s in steps.workable(plan)] == ["a", "d"]
    assert [s["id"] for s in steps.workable(Plan({"steps": [step("b", "pytorch")]}, ()))] == ["b"], "never empty"
    many = Plan({"steps": [step(f"g{n}", risk="none") for n in range(9)]}, ())
    found = steps.workable(many)
    assert [s["id"] for s in found] == ["g0", "g1", "g2", "g3-g8"] and found[-1]["operators"] == [f"g{n}" for n in range(3, 9)]
    situation = Situation(TASK, "t", Settings(), plan=many)
    situation.step = steps.first(situation)
    walked = []
    while situation.step is not None:
        walked.append(situation.step["id"])
        situation.step = steps.following(situation)
    assert walked == ["g0", "g1", "g2", "g3-g8"]
