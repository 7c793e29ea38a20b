from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from tests.unit.webapp.cast import SOURCE, make_user
from webapp.tasks.kernelbench import NotKernelBench, import_kernelbench
from webapp.tasks.models import Suite, Task


@pytest.fixture
def checkout(tmp_path):
    for level in (1, 2):
        folder = tmp_path / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for number in (1, 2, 10):
            (folder / f"{number}_Softmax.py").write_text(SOURCE + f"# {level} {number}\n")
        (folder / "README.md").write_text("not a task")
    (tmp_path / "KernelBench" / "level2" / "3_Broken.py").write_text("class Model:\n  def forward(\n")
    return tmp_path


def test_a_suite_a_level(checkout, db):
    user = make_user()
    first, second = import_kernelbench(checkout, user.personal_team, user)
    assert (first.name, first.new, first.problems) == ("KernelBench L1", 3, [])
    assert (second.name, second.new) == ("KernelBench L2", 3)
    assert len(second.problems) == 1 and "level2/3_Broken.py: line 2" in second.problems[0]
    assert list(Suite.objects.order_by("slug").values_list("name", flat=True)) == ["KernelBench L1", "KernelBench L2"]
    assert set(Task.objects.filter(suite__slug="kernelbench-level1").values_list("name", flat=True)) == {"1_Softmax", "2_Softmax", "10_Softmax"}


@pytest.mark.parametrize("below", ["KernelBench", "KernelBench/level1"])
def test_importing_again_or_from_below_changes_nothing(checkout, db, below):
    user = make_user()
    import_kernelbench(checkout, user.personal_team, user)
    again = import_kernelbench(checkout / below, user.personal_team, user)
    assert again[0].new == 0 and again[0].known == 3
    assert Suite.objects.count() == 2 and Task.objects.count() == 6


def test_what_is_not_a_checkout_says_what_was_looked_for(tmp_path, db):
    user = make_user()
    for path, words in [(tmp_path / "none", "not a directory"), (tmp_path, "level1, level2")]:
        with pytest.raises(NotKernelBench, match=words):
            import_kernelbench(path, user.personal_team, user)
    with pytest.raises(CommandError, match="KernelBench checkout"):
        call_command("import_kernelbench", str(tmp_path))
    with pytest.raises(CommandError, match="no user"):
        call_command("import_kernelbench", str(tmp_path), user="nobody")
