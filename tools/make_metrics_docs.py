"""Write the tables of docs/metrics.md from `foreword.metrics.catalog`.

python tools/make_metrics_docs.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from foreword.metrics.catalog import GROUPS, Metric

TARGET = Path(__file__).parent.parent / "docs" / "metrics.md"
BEGIN = "<!-- written by tools/make_metrics_docs.py -->"
END = "<!-- end -->"


def row(metric: Metric) -> str:
    text = metric.help
    for label, values in metric.labels.items():
        text += f" By `{label}`: {values}."
    return f"| `{metric.exposed_name}` | {metric.kind.value} | {text} |"


def tables() -> str:
    lines = []
    for title, metrics in GROUPS.items():
        lines += [f"### {title}", "", "| metric | kind | what |", "|---|---|---|"]
        lines += [*map(row, metrics), ""]
    return "\n".join(lines)


def render(document: str) -> str:
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    document = TARGET.read_text()
    if arguments.check:
        return int(render(document) != document)
    TARGET.write_text(render(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
