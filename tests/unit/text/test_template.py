# ruff: noqa: E501
"""Chat templates: what they can do, and what they cannot do to us."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest

from foreword.errors import TemplateError
from foreword.text.template import MAX_SOURCE_CHARS, ChatTemplate

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]


def render(source: str, **variables: Any) -> str:
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    return template.render(variables.pop("messages", MESSAGES), **variables)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[1]['content'] }}{{ eos_token }}", "<s>Ho</s>"),
        ("{%- for m in messages %}{{ m.role[0] ~ loop.index }} {% endfor -%}", "u1 a2 "),
        ("{% for m in messages %}\n  {% if loop.last %}\nx\n  {% endif %}\n{% endfor %}", "x\n"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}", "assistant"),
        ("{{ {'a': 'é<', 'b': [1, none, true]} | tojson }}", '{"a": "é<", "b": [1, null, true]}'),
        ("{{ {'b': 1} | tojson(indent=2) }}", '{\n  "b": 1\n}'),
        ("{{ ', '.join(messages | map(attribute='role')) }}", "user, assistant"),
        ("{% set n = namespace(x=1) %}{{ n }}{{ [n] }}{{ 2.345 | round(2) }}", "<namespace>[<namespace>]2.35"),
        ("{{ tools is none }} {{ add_generation_prompt }}", "True True"),
        ("{% if x is defined %}no{% else %}undefined{{ x }}{% endif %}", "undefined"),
        ("{% macro f(a, b='-') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(2, b='+') }}", "1-2+"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "user, assistant"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ (messages | first).content | upper }}{{ messages[-1:] | length }}", "HI1"),
        ("{{ 'a<think>b</think>c'.split('</think>')[-1].strip('\\n') }}", "c"),
        ("{{ ' x '.strip() + 'ab'.replace('a', 'c') + ('%s-%d' % ('z', 3)) }}", "xcbz-3"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}", "a=1"),
        ("{% set x %}block{% endset %}{{ x }}{% filter upper %}y{% endfilter %}", "blockY"),
        ("{% generation %}{{ 'g' }}{% endgeneration %}", "g"),
        ("{{ 'yes' if 'Hi' in messages[0].content and messages is iterable else 'no' }}", "yes"),
        ("{{ ['a', 'b'] + ['c'] }}{{ 'ab' * 2 }}{{ 7 % 4 }}", "['a', 'b', 'c']abab3"),
        ("{{ dict(a=1).get('b', 2) }}{{ range(3) | list }}", "2[0, 1, 2]"),
        ("{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ [n.x] }}", "[<namespace>]"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{% for n in [[1, [2]], [3]] recursive %}{{ loop(n) if n is iterable else n }}{% endfor %}", "123"),
    ],
)  # fmt: skip
def test_what_templates_use(source: str, expected: str) -> None:
    assert render(source) == expected


def test_variables_and_the_date() -> None:
    assert render("{{ thinking }}", thinking=False) == "False"
    assert re.fullmatch(r"\d\d \w{3} \d{4}", render("{{ strftime_now('%d %b %Y') }}"))


def test_a_template_may_refuse() -> None:
    source = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(TemplateError, match="refuses the conversation: roles must alternate"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ",
        "{% for %}",
        "{{ messages | nonsense }}",
        "{{ undefined.attribute }}",
        "{{ 1 + 'a' }}",
        "{{ 1 / 0 }}",
        "{{ nothing() }}",
        "{% include 'x' %}",
        "{% import 'os' as os %}",
        "{{ lipsum() }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ " + "(" * 5_000 + ")" * 5_000 + " }}",
        "x" * (MAX_SOURCE_CHARS + 1),
    ],
)
def test_failing_templates(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__ }}{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ range.__globals__ }}{{ range.__globals__['os'] }}",
        "{{ raise_exception.__globals__['TemplateError'] }}",
        "{{ namespace.__init__.__globals__ }}{{ namespace.__init__.__globals__.os.system('true') }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ messages | attr('__class__') }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ '%s' | format(messages) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ self.__init__.__globals__ }}{{ self._TemplateReference__context.environment.x.y }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages | map(attribute='__class__') | map(attribute='__mro__') | list }}{{ x.y.z }}",
    ],
)
def test_no_way_to_python(source: str) -> None:
    """Every attempt fails, or finds nothing (an undefined value writes as nothing)."""
    try:
        text = render(source)
    except TemplateError:
        return
    assert not re.search(r"class|function|module|built-in", text)


ATTACKS = {
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "three loops": "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{{ c }}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "long range": "{% for a in range(10 ** 12) %}{% endfor %}",
    "multiplication": "{{ 'x' * 10 ** 12 }}",
    "reverse": "{{ 10 ** 9 * [1] }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "squares": "{% set n = namespace(x=9) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "doubling": "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "tilde": "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "lists": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "shared": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "shared dict": "{% set n = namespace(x={}) %}{% for i in range(60) %}{% set n.x = {'a': n.x, 'b': n.x} %}"
    "{% endfor %}",
    "views": "{% set n = namespace(x=[{'a': 'y' * 9999}.items()]) %}{% for i in range(16) %}{% set n.x = [n.x, n.x] %}"
    "{% endfor %}{{ n.x }}",
    "rounding": "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "format width": "{{ '%1000000000d' % 1 }}",
    "format star": "{{ '%*d' % (1000000000, 1) }}",
    "format many": "{{ ('%s' * 1000) % (('x' * 10000,) * 1000) }}",
    "center": "{{ 'x'.center(10 ** 10) }}",
    "center filter": "{{ 'x' | center(10 ** 10) }}",
    "replace": "{{ ('x' * 9999).replace('x', 'y' * 9999) }}",
    "replace filter": "{{ ('x' * 9999) | replace('x', 'y' * 9999) }}",
    "join": "{{ ('y' * 9999).join('x' * 9999) }}",
    "join filter": "{{ range(9999) | join('y' * 9999) }}",
    "indent": "{{ 'a\nb' | indent(10 ** 10) }}",
    "json indent": "{{ [1] | tojson(indent=10 ** 10) }}",
    "output": "{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
    "constant output": "{% for i in range(9999) %}" + "x" * 9999 + "{% endfor %}",
    "captured output": "{% set x %}{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}{% endset %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "tests": "{{ range(9999) | select('in', range(9999) | map('string') | list) | list }}",
    "mapping": "{% for i in range(9999) %}{{ range(9999) | map('string') | list | length }}{% endfor %}",
    "comparing": "{% set n = namespace(x=[], y=[]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
    "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
    "recursive loop": "{% for x in [range(99)] recursive %}{{ loop([range(99), range(99)]) }}{% endfor %}",
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_time_and_size_limits_hold(name: str) -> None:
    began = time.thread_time()
    with pytest.raises(TemplateError):
        render(ATTACKS[name])
    assert time.thread_time() - began < 1


def test_a_running_template_does_not_hold_up_other_threads() -> None:
    def attack() -> None:
        with pytest.raises(TemplateError):
            render(ATTACKS["three loops"].replace("{{ c }}", ""))

    thread = threading.Thread(target=attack)
    thread.start()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    thread.join()
    assert turns > 4  # hundreds, and on a busy machine few


def test_long_conversations_are_within_the_budget() -> None:
    source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{{ '\n' }}{% endfor %}"
    many = [{"role": "user", "content": f"message {i}"} for i in range(5_000)]
    assert render(source, messages=many).count("<|user|>") == 5_000
    big = [{"role": "user", "content": "x" * 5_000_000}]
    assert len(render(source, messages=big)) > 5_000_000
