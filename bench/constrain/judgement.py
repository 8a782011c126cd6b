"""Whether a text has the form that was asked for, judged by Python's `re` and by jsonschema."""

from __future__ import annotations

import json
import re

import jsonschema
from bench.constrain.workloads import Work


def is_valid(work: Work, text: str) -> bool:
    """Whether a whole output has its form, by others' judgement; one that broke off has not."""
    if "regex" in work.form:
        return re.fullmatch(work.form["regex"], text) is not None
    checker = jsonschema.Draft202012Validator(
        work.form["json_schema"], format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return bool(checker.is_valid(value))
