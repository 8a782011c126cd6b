"""The table of keywords in docs/json-schema.md, from committed expectations of the suite."""

from __future__ import annotations

from typing import Any

from tests.conformance.verdicts import HANDLINGS, NO_VALUE

from espalier.constrain.schema.formats import FORMATS, format_outer_texts
from espalier.constrain.schema.keywords import ANNOTATIONS

# Keyword -> the suite's files about it, and what is left out.
_NOTES: dict[str, tuple[str, str]] = {
    "$schema": ("", "the URI of either draft; other drafts are refused"),
    "$id, $anchor": ("anchor.json", "inside the document"),
    "$ref": ("ref.json infinite-loop-detection.json", "inside the document; in draft 7 it hides "
             "its siblings, as the draft says"),
    "$ref to other documents": ("refRemote.json", "refused, but for those the document holds"),
    "$defs, definitions": ("defs.json definitions.json", "in both drafts"),
    "$dynamicRef, $dynamicAnchor": ("dynamicRef.json", "refused where two parts have one name"),
    "$vocabulary": ("vocabulary.json", "metaschemas of one's own are refused"),
    "type": ("type.json", "integers are written without point"),
    "enum": ("enum.json", "as the schema writes them"),
    "const": ("const.json", "as the schema writes it"),
    "minimum": ("minimum.json", ""),
    "maximum": ("maximum.json", ""),
    "exclusiveMinimum": ("exclusiveMinimum.json", ""),
    "exclusiveMaximum": ("exclusiveMaximum.json", ""),
    "multipleOf": ("multipleOf.json", "steps of 2s and 5s (5, 0.01, 0.25), others between bounds "
                   "with up to 1,000 multiples; all others by llguidance or refused"),
    "minLength": ("minLength.json", ""),
    "maxLength": ("maxLength.json", ""),
    "pattern": ("pattern.json optional/ecmascript-regex.json optional/non-bmp-regex.json",
                "ECMA-262; no back-references, word boundaries, look-behind, classes `\\p`, no "
                "anchors or look-ahead inside a repetition"),
    "format": ("", "see below; asserted in both drafts"),
    "prefixItems, items as a list": ("prefixItems.json", "in both drafts"),
    "items": ("items.json", ""),
    "additionalItems": ("additionalItems.json", "beside items as a list; alone in draft 7 only"),
    "minItems": ("minItems.json", ""),
    "maxItems": ("maxItems.json", ""),
    "uniqueItems": ("uniqueItems.json", "up to 8 values to choose from, or one item; all others "
                    "are refused"),
    "contains": ("contains.json", "up to 6 elements before with schemas of their own"),
    "minContains": ("minContains.json", "up to 64"),
    "maxContains": ("maxContains.json", "up to 64"),
    "unevaluatedItems": ("unevaluatedItems.json", ""),
    "properties": ("properties.json", "in the order of the schema"),
    "required": ("required.json", ""),
    "additionalProperties": ("additionalProperties.json", "after the properties that are named"),
    "patternProperties": ("patternProperties.json", "up to 6 patterns in one object"),
    "propertyNames": ("propertyNames.json", ""),
    "minProperties": ("minProperties.json", "at most one of the properties that it counts may be "
                      "one that the schema does not name; up to 8 optional ones"),
    "maxProperties": ("maxProperties.json", "up to 8 optional properties"),
    "dependentRequired": ("dependentRequired.json", ""),
    "dependentSchemas": ("dependentSchemas.json", ""),
    "dependencies": ("dependencies.json optional/dependencies-compatibility.json",
                     "in both drafts"),
    "unevaluatedProperties": ("unevaluatedProperties.json", ""),
    "allOf": ("allOf.json", ""),
    "anyOf": ("anyOf.json", ""),
    "oneOf": ("oneOf.json", ""),
    "not": ("not.json", ""),
    "if, then, else": ("if-then-else.json", ""),
}  # fmt: skip


def keyword_table(expected: dict[str, dict[str, Any]]) -> str:
    """Markdown: keywords, schemas of the suite that are enforced of all there are, and limits."""
    lines = [
        "| keyword | 2020-12 | draft 7 | limits |",
        "|---|---|---|---|",
    ]
    for keyword, (files, note) in _NOTES.items():
        counts = [_counts(expected[draft], files.split()) for draft in ("draft2020-12", "draft7")]
        lines.append(f"| `{keyword.replace(', ', '`, `')}` | {' | '.join(counts)} | {note} |")
    return "\n".join(lines)


def _counts(expected: dict[str, Any], files: list[str]) -> str:
    enforced = total = 0
    for file in files:
        entry = expected["files"].get(file, {})
        refused = entry.get("refused", {}).values()
        num_handled = sum(entry.get(handling, 0) for handling in HANDLINGS)
        num_empty = sum(reason == NO_VALUE for reason in refused)
        enforced += num_handled + num_empty
        total += num_handled + len(refused)
    return f"{enforced} of {total}" if total else ""


def format_table() -> str:
    """Markdown: formats that are enforced."""
    exact: list[str] = []
    some: list[str] = []
    for name in sorted(FORMATS):
        (some if format_outer_texts(name) is None else exact).append(f"`{name}`")
    return (
        f"Enforced, and may be negated: {', '.join(exact)}.\n\n"
        f"Enforced, and refused where negated: {', '.join(some)}."
    )


def annotation_list() -> str:
    """Markdown: keywords that assert nothing."""
    return ", ".join(f"`{name}`" for name in sorted(ANNOTATIONS))
