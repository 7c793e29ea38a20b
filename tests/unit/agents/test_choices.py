"""There is one record per workflow and per limit, used by every interface that offers, refuses or describes them."""

import pytest
from pydantic import ValidationError

from agents.choices import __main__ as made
from agents.choices.limits import LIMITS
from agents.choices.workflows import DEFAULT, PARALLEL, ROLES, SEARCHES, WORKFLOWS, searches, without_models
from agents.cli import parser
from agents.orders import compiled
from agents.settings import Budget, Settings
from agents.workflows import FUNCTIONS
from stitchwork import choices
from stitchwork.arguments import parser as commands


def test_every_record_has_its_code_and_its_page():
    assert list(FUNCTIONS) == list(WORKFLOWS)
    for name in SEARCHES:
        page = made.TABLE.parent / f"{name}.md"
        assert page.read_text().startswith(f"# {name}\n") and SEARCHES[name].sentence.endswith(".")
    assert Settings().workflow == DEFAULT


def test_what_is_made_of_the_records_is_current():
    assert made.COMMANDS.read_text() == made.module(), "run: python -m agents.choices"
    text = made.TABLE.read_text()
    assert text == made.page(text), "run: python -m agents.choices"
    assert tuple(WORKFLOWS) == choices.WORKFLOWS and tuple(SEARCHES) == choices.SEARCHES and choices.PARALLEL == PARALLEL
    assert {unit: limit.usual for unit, limit in LIMITS.items()} == choices.USUAL


@pytest.mark.parametrize("name", list(WORKFLOWS))
def test_both_command_lines_take_each_workflow(name):
    assert parser().parse_args(["solve", "t.py", "--out", "d", "--workflow", name]).workflow == name
    if name in SEARCHES:
        assert commands().parse_args(["submit", "t.py", "--workflow", name]).workflow == name
        assert parser().parse_args(["fork", "d", "--at", "1", "--out", "e", "--workflow", name]).workflow == name
    else:
        with pytest.raises(SystemExit):
            commands().parse_args(["submit", "t.py", "--workflow", name])


@pytest.mark.parametrize(("name", "workflow"), list(WORKFLOWS.items()))
def test_roles_that_a_workflow_has_no_model_for_are_the_compilers(name, workflow):
    models = dict.fromkeys(ROLES, "strong")
    of_notes = {"planner": "planner", "coder": "coder", "judge": "verifier"}
    if workflow.searches:
        assert set(compiled(Settings(workflow=name, **models))) == {of_notes[role] for role in workflow.compiled}
    assert without_models(name) == (not workflow.models)


def test_a_workflow_of_another_version_is_a_search():
    assert searches("of another version") and not without_models("of another version")
    with pytest.raises(ValidationError, match="'stitch', 'forge'"):
        Settings(workflow="of another version")


def test_every_limit_has_one_lower_bound():
    assert list(Budget.model_fields) == list(LIMITS)
    for unit, limit in LIMITS.items():
        assert getattr(Budget(**{unit: limit.least}), unit) == limit.least
        assert getattr(Budget(), unit) == limit.usual
        with pytest.raises(ValidationError):
            Budget(**{unit: 0})
