"""Hold reports that tests make against the published schema."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TypeVar

from jsonschema import Draft202012Validator

T = TypeVar("T", bytes, str)
SCHEMA = Path(__file__).parents[1] / "cudal1_ci" / "schema" / "report.schema.json"


@cache
def validator() -> Draft202012Validator:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def validated(encoded: T) -> T:
    """Return the JSON of a report, which the schema holds to be one."""
    (*errors,) = validator().iter_errors(json.loads(encoded))
    assert not errors, [f"{error.json_path}: {error.message[:300]}" for error in errors]
    return encoded
