"""There is one record per column: the table, its order, the exports, the command line and the document show the same columns."""

import csv
import io
import json

import pytest
from ranked import make_ranked

from stitchwork import lists
from webapp.leaderboard.columns import COLUMNS, COMMAND, COSTS, PAGE, SORTED, USUAL, page
from webapp.leaderboard.filters import Filters
from webapp.leaderboard.models import COVERING, Result
from webapp.leaderboard.ranking import board

pytestmark = pytest.mark.django_db


def test_the_document_names_every_column():
    text = PAGE.read_text()
    assert text == page(text), f"run: {COMMAND}"


def test_what_is_read_is_stored_and_stands_in_the_index():
    stored = {field.name for field in Result._meta.get_fields()}
    for column in COSTS:
        assert column.source in stored and column.source in COVERING["include"]
    assert USUAL in SORTED and len({column.exported for column in COLUMNS}) == len(COLUMNS)


def test_every_column_is_on_the_page_in_the_exports_and_in_a_terminal(people):
    make_ranked(people.alice, "softmax", 2.0, dollars=0.12, llm="gpt-x")
    client = people.client("alice")
    shown = client.get("/leaderboard/").content.decode()
    exported = client.get("/leaderboard/entries.json").json()
    in_csv = next(csv.DictReader(io.StringIO(client.get("/leaderboard/entries.csv").content.decode())))
    terminal = lists.leaderboard(json.loads(json.dumps(exported)))
    assert [told["field"] for told in exported["columns"]] == [column.exported for column in COLUMNS]
    for column in COLUMNS:
        assert column.heading(1.0, "best") in shown and column.heading(1.0, "") in terminal  # a page begins with the best baseline
        assert (f"sort={column.key}" in shown) == column.sorts
        assert column.exported in exported["entries"][0] and column.exported in in_csv
    assert exported["entries"][0]["dollars_per_run"] == 0.12 and "$0.12" in shown and "$0.120" in terminal


@pytest.mark.parametrize("key", list(SORTED))
def test_every_column_that_sorts_puts_its_best_first_and_baselines_never_before_a_cost(people, key):
    for task, ratio, dollars in (("a", 3.0, 1.0), ("b", 2.0, 0.5)):
        make_ranked(people.alice, task, ratio, dollars=dollars, llm="gpt-x")
    make_ranked(people.alice, "a", 1.5, dollars=0.1)
    found = board(people.alice, Filters(sort=key))
    values = [SORTED[key].value(row, "") for row in found.entries]
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=not SORTED[key].least_first)
    if SORTED[key].least_first:
        assert [row.baseline for row in found.rows] == sorted(row.baseline for row in found.rows)
