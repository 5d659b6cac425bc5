"""Jinja with a budget.

Jinja's own sandbox keeps a template away from Python's internals, but not from our time and memory:
two nested loops or ``'x' * 10**12`` are enough. Here everything by which a template can go on or
grow is metered (`Budget`): loops, calls, filters and tests look at the clock; strings and
containers are weighed before they are made; and what cannot be metered is not there. No single
operation takes more than some milliseconds, so other threads are not held up either.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer

from foreword.errors import TemplateError
from foreword.text.budget import Budget, size
from foreword.text.sandbox_filters import (
    STRING_METHODS,
    Filters,
    bounded_range,
    check_operator,
    check_string_method,
    raise_exception,
    strftime_now,
)

COMPILE_SECONDS = 2.0
RENDER_SECONDS = 0.4
BASE_CHARS = 1 << 18  # that a rendering may write, besides four times what it was given

T = TypeVar("T")


class CompiledTemplate:
    """A template that is ready to render; threads may share it.

    Raises:
        TemplateError: the source is not a template, or uses what the sandbox does not offer.
    """

    def __init__(self, source: str) -> None:
        self._environment = _Environment()
        with self._environment.metered(Budget(COMPILE_SECONDS, BASE_CHARS)):
            self._template = _guarded(lambda: self._environment.from_string(source))

    def render(self, variables: Mapping[str, Any]) -> str:
        """Run the template. Raises `TemplateError`, and nothing else, whatever it does."""
        budget = Budget(RENDER_SECONDS, BASE_CHARS + 4 * size(variables))
        with self._environment.metered(budget):
            return _guarded(lambda: "".join(self._template.generate(variables)))


def _guarded(run: Callable[[], T]) -> T:
    try:
        return run()
    except TemplateError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno} of the chat template: {error.message}") from error
    except Exception as error:  # a template is a program; it can fail in every way
        reason = f"{type(error).__name__}: {error}"[:500]
        raise TemplateError(f"the chat template failed: {reason}") from error


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with whitespace rules and extras as chat templates expect them."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, _Generation],
            finalize=self._finalize,
        )
        self._local = threading.local()
        offered = Filters(lambda: self.budget).table()
        self.filters = {name: self._ticking(function) for name, function in offered.items()}
        self.filters |= {"_loop": self._loop, "_weighed": self._weighed, "_concat": self._concat}
        tests: dict[str, Any] = dict(TESTS)
        self.tests = {name: self._ticking(test) for name, test in tests.items()}
        self.globals = {
            "dict": dict,
            "namespace": _Namespace,
            "raise_exception": raise_exception,
            "range": bounded_range,
            "strftime_now": strftime_now,
        }

    @property
    def budget(self) -> Budget:
        """The budget of the run that this thread is in."""
        return self._local.budget  # type: ignore[no-any-return]

    @contextmanager
    def metered(self, budget: Budget) -> Iterator[None]:
        """Charge what this thread does to ``budget``."""
        self._local.budget = budget
        try:
            yield
        finally:
            del self._local.budget

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        metered: nodes.Template = _Meter().visit(tree)
        return metered.set_environment(self)  # type: ignore[return-value]

    def _ticking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)  # keeps Jinja's marks on it
        def ticking(*args: Any, **kwargs: Any) -> Any:
            self.budget.tick()
            return function(*args, **kwargs)

        return ticking

    # What `_Meter` puts into a template. `pass_context` keeps Jinja from calling it when compiling.

    @pass_context
    def _finalize(self, _context: Context, value: Any) -> Any:
        self.budget.tick()
        self.budget.emit(self.budget.weigh(value))
        return value

    @pass_context
    def _loop(self, _context: Context, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.budget.tick()
            yield item

    @pass_context
    def _weighed(self, _context: Context, container: Any) -> Any:
        self.budget.tick()
        self.budget.weigh(container)
        return container

    @pass_context
    def _concat(self, _context: Context, parts: list[Any]) -> str:
        self.budget.reserve(self.budget.weigh(parts))
        return "".join(map(str, parts))

    # Jinja's hooks.

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """``left operator right``, for `intercepted_binops`."""
        self.budget.tick()
        check_operator(self.budget, operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """``obj(*args)``."""
        budget = __self.budget
        budget.tick()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            if __obj.__name__ == "join":
                args = tuple(map(list, args))  # generators cannot be weighed
            check_string_method(budget, owner, __obj.__name__, args)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, (str, list, dict)):
            budget.weigh(result)
        return result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may see ``obj.attr``."""
        if isinstance(obj, str) and attr not in STRING_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)


class _Namespace(Namespace):
    """Jinja's namespace, which would write all that it holds."""

    def __repr__(self) -> str:
        return "<namespace>"


class _Generation(Extension):
    """``{% generation %}`` marks for training what the model says; here it marks nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Meter(NodeTransformer):
    """Puts the sandbox's own filters where a template loops, concatenates, nests or writes."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filter("_loop", node.iter)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Output:  # noqa: N802
        # Jinja writes plain text past `finalize`; constants go through it.
        self.generic_visit(node)
        node.nodes = [
            nodes.Const(part.data, lineno=part.lineno)
            if isinstance(part, nodes.TemplateData)
            else part
            for part in node.nodes
        ]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filter("_concat", nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filter("_weighed", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filter("_weighed", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filter("_weighed", node) if node.ctx == "load" else node


def _filter(name: str, node: Any) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
