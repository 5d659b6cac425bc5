"""What is made from the catalog is up to date: docs, the dashboard's names, Grafana's queries."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from foreword.metrics.catalog import GROUPS, Kind
from foreword.metrics.partition import PARTS
from foreword.server import dashboard

ROOT = Path(__file__).parents[3]
GRAFANA = json.loads((ROOT / "docs" / "grafana" / "foreword.json").read_text())


@pytest.mark.parametrize("tool", ["make_metrics_docs.py", "make_grafana_dashboard.py"])
def test_what_is_generated_is_current(tool):
    found = subprocess.run([sys.executable, ROOT / "tools" / tool, "--check"], check=False)
    assert found.returncode == 0, f"run tools/{tool}"


def test_the_page_knows_all_parts():
    source = (Path(dashboard.__file__).parent / "static" / "parts.js").read_text()
    assert re.findall(r'\["(.*)", "(.*)"\],', source) == list(PARTS.items())
    styles = (Path(dashboard.__file__).parent / "static" / "style.css").read_text()
    assert all(f".part-{part} {{" in styles for part in PARTS)


def samples() -> dict[str, set[str]]:
    """The samples that `/metrics` has, with their labels."""
    found = {}
    for metric in (metric for group in GROUPS.values() for metric in group):
        labels = {"model_name", "instance", *metric.labels}
        if metric.kind is not Kind.HISTOGRAM:
            found[metric.exposed_name] = labels
            continue
        for suffix in ("_sum", "_count"):
            found[metric.exposed_name + suffix] = labels
        found[metric.exposed_name + "_bucket"] = labels | {"le"}
    return found


def selectors(expression: Any) -> list[Any]:
    """The vector selectors in a PromQL expression."""
    if isinstance(expression, promql_parser.VectorSelector):
        return [expression]
    below = [getattr(expression, name, None) for name in ("expr", "lhs", "rhs", "vector_selector")]
    below += getattr(expression, "args", None) or []
    return [found for inner in below if inner is not None for found in selectors(inner)]


def test_grafana_asks_for_what_is_there():
    known = samples()
    queries = [target["expr"] for panel in GRAFANA["panels"] for target in panel["targets"]]
    assert len(queries) > 20
    asked = set()
    for query in queries:
        expression = promql_parser.parse(query.replace("$__rate_interval", "1m"))
        found = selectors(expression)
        assert found, query
        for selector in found:
            assert {matcher.name for matcher in selector.matchers.matchers} <= known[selector.name]
            asked.add(selector.name)
        grouped = set(re.findall(r"by \((\w+)\)", query))
        assert grouped <= set.union(*(known[selector.name] for selector in found))
    assert "foreword:ttft_part_seconds_sum" in asked


def test_grafana_can_place_the_panels():
    panels = GRAFANA["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
