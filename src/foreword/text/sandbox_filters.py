"""What chat templates may call: filters, string methods and functions that cannot run away."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NoReturn

from jinja2.filters import FILTERS, do_indent, do_join, do_round
from jinja2.utils import pass_eval_context

from foreword.errors import TemplateError
from foreword.text.budget import Budget

MAX_RANGE = 10_000
MAX_INDENT = 16
MAX_DATE_FORMAT_CHARS = 64
MAX_INT_BITS = 1024
MAX_PRECISION = 20

# Jinja's filters whose result is no larger than their arguments.
PLAIN_FILTERS = (  # noqa: SIM905
    "abs capitalize count d default dictsort e escape first float int items last length list lower "
    "map max min reject rejectattr reverse safe select selectattr sort title trim unique "
    "upper wordcount"
).split()

# The methods of strings that templates may call.
STRING_METHODS = (  # noqa: SIM905
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit "
    "islower isnumeric isspace istitle isupper join lower lstrip partition removeprefix "
    "removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip "
    "swapcase title upper"
).split()


class Filters:
    """The filters whose result can be larger than their arguments: weighed before it is made."""

    def __init__(self, budget: Callable[[], Budget]) -> None:
        self._budget = budget

    def table(self) -> dict[str, Callable[..., Any]]:
        """All filters by name."""
        own = {
            "indent": self.indent,
            "join": self.join,
            "replace": self.replace,
            "round": self.round,
            "string": self.string,
            "tojson": self.tojson,
        }
        return {**{name: FILTERS[name] for name in PLAIN_FILTERS}, **own}

    def string(self, value: Any) -> str:
        """``value`` as text."""
        self._budget().weigh(value)
        return str(value)

    @pass_eval_context
    def join(self, context: Any, value: Iterable[Any], d: Any = "", attribute: Any = None) -> str:
        """Jinja's ``join``."""
        items = list(value)
        self._budget().reserve(self._budget().weigh(items) + len(str(d)) * len(items))
        return str(do_join(context, items, str(d), attribute))

    def replace(self, s: Any, old: str, new: str, count: int = -1) -> str:
        """``str.replace``."""
        text = self.string(s)
        self._budget().reserve(replaced_size(text, old, new))
        return text.replace(old, new, count)

    def round(self, value: float, precision: int = 0, method: Any = "common") -> float:
        """Jinja's ``round``."""
        if abs(precision) > MAX_PRECISION:
            raise TemplateError(f"the chat template rounds to more than {MAX_PRECISION} digits")
        return do_round(value, precision, method)

    def indent(self, s: str, width: Any = 4, first: bool = False, blank: bool = False) -> str:
        """Jinja's ``indent``."""
        if len(width) > MAX_INDENT if isinstance(width, str) else width > MAX_INDENT:
            raise TemplateError(f"the chat template indents by more than {MAX_INDENT}")
        self._budget().reserve(len(s) + (s.count("\n") + 1) * MAX_INDENT)
        return str(do_indent(s, width, first, blank))

    def tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON as models are trained on it: nothing escaped for HTML, arguments as json.dumps."""
        if indent is not None and indent > MAX_INDENT:
            raise TemplateError(f"the chat template indents by more than {MAX_INDENT}")
        self._budget().weigh(value)
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )


def replaced_size(text: str, old: str, new: str) -> int:
    """An upper bound for the length of ``text.replace(old, new)``."""
    return len(text) + text.count(old) * max(0, len(new) - len(old))


def check_string_method(budget: Budget, text: str, name: str, args: tuple[Any, ...]) -> None:
    """Weigh the result of ``text.name(*args)`` for the methods that can make text longer."""
    if name == "replace" and len(args) >= 2:
        budget.reserve(replaced_size(text, *args[:2]))
    elif name == "join" and args:
        budget.reserve(budget.weigh(args[0]) + len(text) * len(args[0]))


def check_operator(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Weigh the result of ``left operator right``, for ``+``, ``*``, ``**`` and ``%``."""
    if operator == "+" and not isinstance(left, (int, float)):
        budget.reserve(budget.weigh(left) + budget.weigh(right))
    elif operator == "%" and isinstance(left, str):
        if re.search(r"%[^%a-zA-Z]*(\*|\d{3})", left):
            raise TemplateError("the chat template formats text to a great width")
        budget.reserve(len(left) + left.count("%") * budget.weigh(right))
    elif operator == "*":
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
        else:
            times, value = (left, right) if isinstance(left, int) else (right, left)
            if isinstance(times, int):
                budget.reserve(max(times, 0) * budget.weigh(value))
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * abs(right))


def _check_bits(bits: int) -> None:
    if bits > MAX_INT_BITS:
        raise TemplateError("the chat template computes a number of absurd size")


def bounded_range(*args: int) -> range:
    """``range`` of at most `MAX_RANGE` numbers."""
    numbers = range(*args)
    if len(numbers) > MAX_RANGE:
        raise TemplateError(f"the chat template counts to more than {MAX_RANGE}")
    return numbers


def raise_exception(message: str) -> NoReturn:
    """By which a template refuses a conversation."""
    raise TemplateError(f"the chat template refuses the conversation: {str(message)[:500]}")


def strftime_now(form: str) -> str:
    """The local time, in `strftime`'s format."""
    if len(form) > MAX_DATE_FORMAT_CHARS:
        raise TemplateError("the chat template asks for a date in an absurd format")
    return datetime.now().strftime(form)
