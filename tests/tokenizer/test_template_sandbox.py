"""Templates from model files cannot reach Python, nor use unbounded time or memory."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from espalier.errors import ChatTemplateError
from espalier.tokenizer.template_sandbox import TemplateSandbox

SANDBOX = TemplateSandbox(datetime(2024, 5, 1, 12, 30))


def render(source: str, **variables: Any) -> str:
    return SANDBOX.render(SANDBOX.compiled(source), variables)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for x in xs %}\n  {{ x }}\n{% endfor %}", "  1\n  2\n"),
        ("{% for x in xs %}{{ loop.index0 }}{% if loop.last %}.{% endif %}{% endfor %}", "01."),
        ("{% for x in xs %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"),
        ("{% for x in xs | map('string') %}{{ x }},{{ loop.length }};{% endfor %}", "1,2;2,2;"),
        ("{% for x in missing %}{% else %}none{% endfor %}", "none"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{% for x in xs recursive %}{{ x }}{% endfor %}", "12"),
        ("{{ 'a' ~ 1 ~ none ~ xs }}", "a1None[1, 2]"),
        ("{{ 'a' + 'b' * 3 }}{{ 2 * 3 + 2 ** 3 }}{{ 7 % 4 }}", "abbb143"),
        ("{{ xs | tojson }} {{ {'é': '<'} | tojson }}", '[1, 2] {"é": "<"}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=2) }}", '{\n  "b": 1,\n  "a": 2\n}'),
        ("{{ xs | join('-') }}{{ [{'n': 1}] | join(',', attribute='n') }}", "1-21"),
        ("{{ 'a.b.c' | replace('.', '') }}{{ 'a.b'.replace('.', '/') }}", "abca/b"),
        ("{{ '-'.join(['x', 'y']) }}{{ ' x '.strip() }}{{ 'a b'.split() | length }}", "x-yx2"),
        ("{{ strftime_now('%d %b %Y') }}", "01 May 2024"),
        ("{% generation %}a{{ 1 }}{% endgeneration %}", "a1"),
        ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(1) }}{{ m('a') }}", "<1><a>"),
        ("{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + x %}{% endfor %}"
         "{{ ns.n }}", "3"),
        ("{{ m.role }}{{ m['role'] }}{{ m.missing is defined }}", "useruserFalse"),
        ("{{ tools is none }}{{ 'x' is string }}{{ xs is iterable }}", "TrueTrueTrue"),
        ("{%- if 'a' in 'abc' %} yes {%- endif %}", " yes"),
        ("{{ [3, 1, 2] | sort | first }}{{ (1, 2) }}{{ {'k': [1]} }}", "1(1, 2){'k': [1]}"),
        ("{% set a, b = (1, 2) %}{{ a }}{{ b }}{{ 'x' in ('x', 'y') }}", "12True"),
        ("{{ xs | map('string') | list | length }}{{ [m] | map(attribute='role') | first }}",
         "2user"),
        ("{{ [m] | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ [m] | rejectattr('role', 'in', ['user']) | list }}", "[]"),
        ("{{ missing | default('d') }}{{ 'a' | upper }}{{ '3' | int + 1 }}{{ m | items | list }}",
         "dA4[('role', 'user')]"),
        ("{% for x in xs if x > 1 %}{{ x }}{% endfor %}", "2"),
        ("{{ strftime_now('%-d') }}{{ range(2) | list }}", "1[0, 1]"),
        ("{% if xs is not mapping and m is mapping %}{{ m.get('x', 'none') }}{% endif %}", "none"),
        ("{{ xs[::-1] }}{{ xs[0] }}{{ 'abc'[1:] }}", "[2, 1]1bc"),
    ],
)  # fmt: skip
def test_what_templates_use_works(source: str, text: str) -> None:
    assert render(source, xs=[1, 2], m={"role": "user"}, tools=None) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ xs.__class__ }}{{ xs.__class__.__base__ }}{{ (xs|map(attribute='__class__')|list)[0] }}"
        "{{ namespace.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__self__ }}{{ strftime_now.__self__.__class__ }}",
        "{{ '{0.__class__}'.format(xs) }}",
        "{{ '%s' % xs }}",
        "{{ '%s' | format(xs) }}",
        "{{ xs.append(3) }}",
        "{{ m.update({'role': 'system'}) }}",
        "{% include 'file' %}",
        "{% import 'file' as f %}",
    ],
)
def test_reaching_python_or_changing_arguments_is_refused(source: str) -> None:
    xs, message = [1, 2], {"role": "user"}
    try:
        text = render(source, xs=xs, m=message)
    except ChatTemplateError:
        text = ""
    assert "class" not in text
    assert "object" not in text
    assert xs == [1, 2]
    assert message == {"role": "user"}


DOUBLE = (
    "{% set ns = namespace(x=START) %}{% for i in range(200) %}{% set ns.x = STEP %}{% endfor %}"
)


def doubling(start: str, step: str, end: str = "") -> str:
    return DOUBLE.replace("START", start).replace("STEP", step) + end


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(9999) %}{% for j in range(99) %}{{ 'word' }}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% set x %}{% for i in range(99999) %}LONG{% endfor %}{% endset %}".replace(
            "LONG", "text" * 200
        ),
        "{{ 'a' * 10 ** 10 }}",
        "{{ [0] * 10 ** 10 }}",
        "{{ 10 ** 10 ** 3 }}{{ 2 ** 999999999 }}",
        "{{ 'a' | center(10 ** 10) }}",
        "{{ 'a'.ljust(10 ** 10) }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ [1] | tojson(indent=10 ** 9) }}",
        "{{ [1] | batch(10 ** 9, 0) | list | length }}",
        "{{ [1] | slice(10 ** 9) | list | length }}",
        doubling("'a'", "ns.x + ns.x"),
        doubling("'a'", "ns.x ~ ns.x"),
        doubling("'a'", "[ns.x, ns.x] | join"),
        doubling("'a'", "''.join([ns.x, ns.x])"),
        doubling("'aa'", "ns.x | replace('a', ns.x)"),
        doubling("'aa'", "ns.x.replace('a', ns.x)"),
        doubling("'aa'", "ns.x.replace('', ns.x)"),
        doubling("3", "ns.x * ns.x"),
        doubling("[1]", "ns.x + ns.x"),
        doubling("[1]", "[ns.x, ns.x]", "{{ ns.x }}"),
        doubling("[1]", "[ns.x, ns.x]", "{{ ns.x | tojson }}"),
        doubling("[1]", "[ns.x, ns.x]", "{{ ns.x | string }}"),
        doubling("[1]", "[ns.x, ns.x]", "{{ 'a' ~ ns.x }}"),
        doubling("{}", "{'a': ns.x, 'b': ns.x}", "{{ ns.x }}"),
        doubling("()", "(ns.x, ns.x)", "{{ {ns.x: 1} }}"),
        doubling("[1]", "dict(a=ns.x, b=ns.x)", "{{ ns.x }}"),
        doubling("[]", "ns.x + [ns.x]", "{{ ns.x == ns.x }}"),
        "{% for i in range(99) %}{{ range(99999) | list | length }}{% endfor %}",
        "{% for i in range(9999) %}{{ xs | map('upper') | sort | length }}{% endfor %}",
        "{{ ([[0] * 9999] * 9999) | sum(start=[]) | length }}",
        "{{ 'a'.encode().ljust(10 ** 10) }}",
        "{{ strftime_now('%9999999999d') }}",
        "{{ {}.fromkeys(range(99999)) }}",
    ],
)
def test_unbounded_work_is_refused_soon(source: str) -> None:
    start = time.process_time()
    with pytest.raises(ChatTemplateError):
        render(source, xs=["word"] * 100)
    assert time.process_time() - start < 20


def test_long_contents_are_allowed() -> None:
    content = "word " * 600_000  # 3 MB
    source = "{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}"
    assert render(source, messages=[{"content": content}]) == f"<{content}>"
    with pytest.raises(ChatTemplateError, match="writes more than 16000000 characters"):
        render(source, messages=[{"content": content}] * 6)
