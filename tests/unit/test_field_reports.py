"""The table of field reports names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/evidence/field-reports.md").read_text()


def test_each_row_names_a_test_or_says_why_there_is_none() -> None:
    rows = re.findall(r"^\| P\d.*\| (.+) \|$", TABLE, re.MULTILINE)
    assert len(rows) > 80
    reasons = ("- ", "the same", "the first of", "`make lint`")
    assert all(row.startswith(reasons) or "::" in row for row in rows)


def test_each_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", TABLE)
    assert len(named) > 100
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not re.search(rf"^ *(?:def|class) {name}\b", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert not missing
