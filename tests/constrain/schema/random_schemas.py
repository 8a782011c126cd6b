"""Strategies: random schemas over a small world of values, and those values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "ab", "c")
PATTERNS = ("^a", "b$", "a|c", "^.?$", "^(?!a)", "[^b]", '"')

names = st.sampled_from(NAMES)
numbers = st.one_of(
    st.integers(-3, 12), st.sampled_from([-1.5, -0.25, 0.25, 0.5, 1.5, 2.75, 9.5, 10.25])
)
texts = st.text(alphabet='ab"\t', max_size=3)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=5,
)
small_values = st.one_of(scalars, st.lists(scalars, max_size=2))

_counts = st.integers(0, 3)
_types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def _maybe(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {keyword: value for part in parts for keyword, value in part.items()}


_scalar_schemas = st.one_of(
    st.fixed_dictionaries({"type": _types}),
    st.fixed_dictionaries({"type": st.lists(_types, min_size=1, max_size=3, unique=True)}),
    st.fixed_dictionaries({"const": small_values}),
    st.fixed_dictionaries({"enum": st.lists(small_values, max_size=4)}),
    _maybe(
        minimum=numbers,
        maximum=numbers,
        exclusiveMinimum=numbers,
        exclusiveMaximum=numbers,
        multipleOf=st.sampled_from([1, 2, 0.25, 0.5, 5, 10]),
    ),
    _maybe(minLength=_counts, maxLength=_counts, pattern=st.sampled_from(PATTERNS)),
    st.booleans(),
)


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    name_lists = st.lists(names, max_size=2, unique=True)
    by_name = st.dictionaries(names, inner, max_size=3)
    arrays = _maybe(
        prefixItems=lists, items=inner, minItems=_counts, maxItems=_counts,
        contains=inner, minContains=_counts, maxContains=_counts, unevaluatedItems=inner,
    )  # fmt: skip
    objects = _maybe(
        properties=by_name,
        patternProperties=st.dictionaries(st.sampled_from(PATTERNS), inner, max_size=2),
        additionalProperties=inner,
        propertyNames=inner,
        required=name_lists,
        minProperties=st.integers(0, 2),
        maxProperties=_counts,
        dependentRequired=st.dictionaries(names, name_lists, max_size=2),
        dependentSchemas=st.dictionaries(names, inner, max_size=2),
        unevaluatedProperties=inner,
    )
    closed = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": by_name, "additionalProperties": st.just(False)},
        optional={"required": name_lists, "minProperties": _counts},
    )
    applied = st.one_of(
        st.fixed_dictionaries({"allOf": lists}),
        st.fixed_dictionaries({"anyOf": lists}),
        st.fixed_dictionaries({"oneOf": lists}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"if": inner}, optional={"then": inner, "else": inner}),
    )
    parts = st.one_of(arrays, objects, closed, applied, inner.filter(lambda s: s is not False))
    return st.lists(
        parts.map(lambda part: part if isinstance(part, dict) else {}), min_size=1, max_size=3
    ).map(_merged)


schemas: st.SearchStrategy[Any] = st.recursive(_scalar_schemas, _compound, max_leaves=6)
