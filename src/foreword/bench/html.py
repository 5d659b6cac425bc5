"""Reports as pages that need nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from foreword.errors import ForewordError

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em;
       color: #1c1c1c; background: #fff }
table { border-collapse: collapse; margin: 1em 0 }
th, td { padding: .2em .9em; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
.plotly-graph-div { width: 100% }
"""


def import_plotly() -> Any:
    """Give ``plotly.graph_objects``.

    Raises:
        ForewordError: it is not installed; says how.
    """
    try:
        import plotly.graph_objects as graph_objects
    except ImportError:
        raise ForewordError("an HTML report needs plotly: pip install 'foreword[bench]'") from None
    return graph_objects


def many_colours() -> list[str]:
    """Give two dozen colours, for plots with more lines than plotly's ten."""
    from plotly.colors import qualitative

    return list(qualitative.Dark24)


def figure(x_title: str, y_title: str) -> Any:
    """Give an empty plot with named axes, the upright one from zero."""
    plot = import_plotly().Figure()
    plot.update_layout(
        template="plotly_white",
        height=420,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        xaxis_title=x_title,
        yaxis={"title": y_title, "rangemode": "tozero"},
        showlegend=True,
    )
    return plot


def paragraphs(lines: Iterable[str]) -> str:
    """Give each line as a paragraph; the text is escaped."""
    return "\n".join(f"<p>{escape(line)}</p>" for line in lines)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a table; the cells are escaped."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in headings)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def write_page(path: Path, title: str, parts: Iterable[tuple[str, Any]]) -> None:
    """Write a page.

    Args:
        parts: headings, each with HTML or a plotly figure.

    Raises:
        ForewordError: plotly is not installed.
    """
    import_plotly()
    from plotly.offline import get_plotlyjs

    body = [f"<h1>{escape(title)}</h1>"]
    for heading, part in parts:
        html = part
        if not isinstance(part, str):
            html = part.to_html(full_html=False, include_plotlyjs=False)
        body.append(f"<h2>{escape(heading)}</h2>\n{html}")
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><script>{get_plotlyjs()}</script>"
    )
    page = f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n'
    path.write_text(page + "\n".join(body) + "\n</body></html>\n", encoding="utf-8")
