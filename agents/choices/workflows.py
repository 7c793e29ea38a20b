"""The workflows as seen by the rest of the program, with one record each. Their implementations are in `agents.workflows`, under the same names.

To add a workflow, write its record here and its function in a module of `agents.workflows`, then run `python -m agents.choices` to update the
generated parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

Role = Literal["planner", "coder", "judge"]
ROLES: tuple[Role, ...] = ("planner", "coder", "judge")


@dataclass(frozen=True)
class Workflow:
    """A way to search for programs, or to measure a program that a person wrote."""

    name: str
    sentence: str  # description for forms and help texts
    source: str  # the work it is based on
    short: str  # the row of docs/reference/workflows/README.md
    when: str
    models: tuple[Role, ...] = ROLES  # roles that a language model may play; the compiler plays all others, regardless of the settings
    searches: bool = True  # whether it writes programs; if false, it measures a person's program
    parallel: bool = False  # whether it follows several approaches concurrently, as many as the `workers` setting allows
    tree: bool = False  # whether it keeps a decision tree, which the run's page displays
    judges_all: bool = False  # whether a model that plays the judge sees every failure, including those that the compiler's message already explains
    programs: int | None = None  # number of programs that it proposes; null: as many as the budget allows

    @property
    def compiled(self) -> tuple[Role, ...]:
        """The roles that the compiler always plays."""
        return tuple(role for role in ROLES if role not in self.models)


_ALL = (
    Workflow(
        "stitch",
        "Plan, code step by step, verify, profile, diagnose, act on the diagnosis; re-plan if that does not help (StitchCUDA).",
        source="StitchCUDA",
        short="plans, writes code step by step, verifies, profiles, diagnoses and routes",
        when="the task has several operators and the model plans well; the default",
    ),
    Workflow(
        "forge",
        "One correction or one optimisation per round, with only the latest program and judgement in view (CudaForge).",
        source="CudaForge",
        short="Coder and Judge alternate for ten rounds, without history",
        when="the task needs one kernel, calls are few, or the model is cheap and has a short context",
        models=("coder", "judge"),
        judges_all=True,
    ),
    Workflow(
        "pilot",
        "A population of strategies: crossed as strategies, translated to code, revised, aligned with what survived (cuPilot).",
        source="cuPilot",
        short="a population of strategies is crossed, translated into code and re-aligned",
        when="you can afford many calls, and ideas may combine well",
        parallel=True,
    ),
    Workflow(
        "branch",
        "Many ideas at once; the best four continue; broken programs get at most five repairs (PIKE).",
        source="PIKE-B",
        short="ten branches per phase from the best four programs, at most five repairs each",
        when="you can afford many calls, and they can run concurrently",
        parallel=True,
    ),
    Workflow(
        "beam",
        "Several branches at once over all devices: each improves its own program; one without gains continues from the best, a losing one ends.",
        source="KernelAgent, AKG, KernelEvolve",
        short="concurrent search paths, each with its own parent program; migration, and pruning by profile",
        when="you have several devices of one model, or ideas should not wait for each other",
        parallel=True,
    ),
    Workflow(
        "worldmodel",
        "A tree of decisions that a model edits by scripts; the next node is chosen by how well its strategies kept such promises before (K-Search).",
        source="K-Search",
        short="a decision tree that scripts edit; beliefs, updated by results, select the next node",
        when="you have dozens of calls, the expected gains differ, and there are earlier runs on the same device",
        models=("planner", "coder"),
        tree=True,
    ),
    Workflow(
        "descend",
        "No model: the compiler's program, with its numbers tuned one coordinate after another.",
        source="Ansor, Droplet Search",
        short="no language model: rules choose structures, coordinate descent tunes numbers",
        when="no model is available, or only numbers are left to tune",
        models=(),
    ),
    Workflow(
        "random",
        "No model and no judgement: random choices of the compiler, as a baseline for the others.",
        source="(control)",
        short="no language model: random ideas and numbers",
        when="you need a baseline in the arena",
        models=(),
    ),
    Workflow(
        "verify",
        "Measure a person's own program instead of writing one.",
        source="",
        short="verifies a person's own program, without agents",
        when="",
        models=(),
        searches=False,
        programs=1,
    ),
)
WORKFLOWS: dict[str, Workflow] = {workflow.name: workflow for workflow in _ALL}
SEARCHES: dict[str, Workflow] = {name: workflow for name, workflow in WORKFLOWS.items() if workflow.searches}
PARALLEL: tuple[str, ...] = tuple(name for name, workflow in WORKFLOWS.items() if workflow.parallel)
SIDE_BY_SIDE = f"{', '.join(PARALLEL[:-1])} and {PARALLEL[-1]}"  # the same in words
DEFAULT = _ALL[0].name
OWN_PROGRAM = next(workflow for workflow in _ALL if not workflow.searches)

if TYPE_CHECKING:
    Name = str
    Search = str
else:  # type checkers reject a computed Literal; pydantic accepts it and lists the choices in errors and schemas
    Name = Literal[tuple(WORKFLOWS)]
    Search = Literal[tuple(SEARCHES)]


def played_by_the_compiler() -> str:
    """Returns the parts that no model plays, listing whole workflows first and then single roles: "descend, forge's planner"."""
    whole = [name for name, workflow in SEARCHES.items() if not workflow.models]
    parts = [f"{name}'s {' and '.join(workflow.compiled)}" for name, workflow in SEARCHES.items() if workflow.models and workflow.compiled]
    return ", ".join(whole + parts)


def searches(name: str) -> bool:
    """Returns whether runs of this workflow write programs. An unknown workflow, for example from an imported trace, is assumed to write programs."""
    return name not in WORKFLOWS or WORKFLOWS[name].searches


def without_models(name: str) -> bool:
    """Returns whether this workflow uses no language model, so that a run costs only device time."""
    return name in WORKFLOWS and not WORKFLOWS[name].models
