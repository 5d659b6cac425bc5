"""Write docs/grafana/foreword.json, a dashboard for Grafana 9 and newer over Prometheus.

python tools/make_grafana_dashboard.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "docs" / "grafana" / "foreword.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WHERE = 'model_name=~"$model_name",instance=~"$instance"'
HALF, HEIGHT = 12, 8  # of a screen that is 24 wide


def rate(name: str, *labels: str) -> str:
    """A counter's growth per second."""
    return f"rate(foreword:{name}{{{','.join((WHERE, *labels))}}}[$__rate_interval])"


def quantile(rank: float, histogram: str) -> tuple[str, str]:
    buckets = rate(f"{histogram}_bucket")
    return f"histogram_quantile({rank}, sum by (le) ({buckets}))", f"p{rank * 100:g}"


def quantiles(histogram: str) -> list[tuple[str, str]]:
    return [quantile(rank, histogram) for rank in (0.5, 0.9, 0.99)]


def gauge(name: str) -> str:
    return f"sum(foreword:{name}{{{WHERE}}})"


def targets(queries: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": query,
            "legendFormat": legend,
            "range": True,
            "refId": chr(ord("A") + index),
        }
        for index, (query, legend) in enumerate(queries)
    ]


def panel(
    title: str,
    about: str,
    unit: str,
    queries: list[tuple[str, str]],
    *,
    stacked: bool = False,
) -> dict[str, Any]:
    stacking = {"mode": "normal" if stacked else "none", "group": "A"}
    return {
        "type": "timeseries",
        "title": title,
        "description": about,
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": HALF, "x": 0, "y": 0},
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "min": 0,
                "color": {"mode": "palette-classic"},
                "custom": {
                    "drawStyle": "line",
                    "lineWidth": 1,
                    "fillOpacity": 60 if stacked else 8,
                    "showPoints": "never",
                    "spanNulls": False,
                    "stacking": stacking,
                },
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": targets(queries),
    }


def panels() -> list[dict[str, Any]]:
    parts = rate("ttft_part_seconds_sum")
    requests = f"sum({rate('time_to_first_token_seconds_count')})"
    prompts = f"sum({rate('prompt_tokens_total')})"
    hits = rate("prompt_tokens_total", 'source!="computed"')
    of_each = "/ ignoring(part) group_left"
    return [
        panel(
            "Time to first token",
            "Request read from the socket to first content byte written.",
            "s",
            quantiles("time_to_first_token_seconds"),
        ),
        panel(
            "Where it went",
            "Mean seconds per request in each part of its TTFT: stacked, they are the mean TTFT.",
            "s",
            [(f"sum by (part) ({parts}) {of_each} {requests}", "{{part}}")],
            stacked=True,
        ),
        panel(
            "Time between tokens",
            "Between two writes of content in a stream.",
            "s",
            quantiles("inter_token_latency_seconds"),
        ),
        panel(
            "End to end",
            "Request read to last byte.",
            "s",
            quantiles("e2e_request_latency_seconds"),
        ),
        panel(
            "Waiting for the first step",
            "Handed to the engine to the start of the first own step.",
            "s",
            quantiles("request_queue_time_seconds"),
        ),
        panel(
            "Prefill",
            "Start of the first own step to the first sampled token.",
            "s",
            quantiles("request_prefill_time_seconds"),
        ),
        panel(
            "Sequences",
            "Those that run and those that wait.",
            "short",
            [
                (gauge("num_requests_running"), "running"),
                (gauge("num_requests_waiting"), "waiting"),
            ],
        ),
        panel(
            "KV blocks",
            "Cached ones are free to take.",
            "short",
            [(f"sum by (state) (foreword:kv_blocks{{{WHERE}}})", "{{state}}")],
            stacked=True,
        ),
        panel(
            "Prefix cache",
            "Share of prompt tokens whose keys and values were not computed.",
            "percentunit",
            [(f"sum({hits}) / {prompts}", "hit rate")],
        ),
        panel(
            "Tokens per second",
            "Prompt tokens by where their keys and values came from, and generated tokens.",
            "short",
            [
                (f"sum by (source) ({rate('prompt_tokens_total')})", "prompt, {{source}}"),
                (f"sum({rate('generation_tokens_total')})", "generated"),
            ],
        ),
        panel(
            "Step",
            "One step of the engine.",
            "s",
            quantiles("step_duration_seconds"),
        ),
        panel(
            "Tokens per step",
            "How full steps are.",
            "short",
            quantiles("step_tokens"),
        ),
        panel(
            "Completions",
            "Per second, by how they ended.",
            "reqps",
            [(f"sum by (finish_reason) ({rate('completions_total')})", "{{finish_reason}}")],
        ),
        panel(
            "Trouble",
            "Errors by status, sequences that had to give up their KV blocks, and tokens computed "
            "again because of that, per second.",
            "short",
            [
                (f"sum by (status) ({rate('errors_total')})", "status {{status}}"),
                (f"sum({rate('preemptions_total')})", "preemptions"),
                (f"sum({rate('recomputed_tokens_total')})", "recomputed tokens"),
            ],
        ),
    ]


def arranged(boxes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the panels side by side, row by row, and number them."""
    x = y = 0
    for number, box in enumerate(boxes, start=1):
        box["id"] = number
        box["gridPos"].update(x=x, y=y)
        x, y = (HALF, y) if x == 0 else (0, y + HEIGHT)
    return boxes


def variable(name: str, label: str) -> dict[str, Any]:
    query = f"label_values(foreword:num_requests_running, {name})"
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
    }


def dashboard() -> dict[str, Any]:
    source = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "current": {},
        "refresh": 1,
    }
    return {
        "uid": "foreword-ttft",
        "title": "foreword",
        "description": "Time to first token, and where it goes.",
        "tags": ["foreword", "llm"],
        "schemaVersion": 37,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                source,
                variable("model_name", "Model"),
                variable("instance", "Instance"),
            ]
        },
        "annotations": {"list": []},
        "links": [],
        "panels": arranged(panels()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    text = json.dumps(dashboard(), indent=2) + "\n"
    if arguments.check:
        return int(not TARGET.exists() or TARGET.read_text() != text)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
