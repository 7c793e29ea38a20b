"""SQL in separate files: statements are read by name, without the comments at their heads."""

import pytest

from webapp.sql import statements


def test_statements_come_by_name(tmp_path):
    user = tmp_path / "rescue.py"
    user.with_suffix(".sql").write_text("-- name: first\n-- Why it is so, 100 %.\nSELECT 1\n\n-- name: second\nSELECT 2 -- two\nFROM t\n")
    assert statements(str(user)) == {"first": "SELECT 1", "second": "SELECT 2 -- two\nFROM t"}


def test_a_file_without_names_is_refused(tmp_path):
    (tmp_path / "a.sql").write_text("SELECT 1")
    with pytest.raises(ValueError, match="names no statement"):
        statements(str(tmp_path / "a.py"))
    with pytest.raises(OSError):
        statements(str(tmp_path / "b.py"))
