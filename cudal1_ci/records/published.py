"""Write reports as JSON, and read them back.

The JSON is the record, field by field, with three differences for those who read it: it begins with
`schema_version`, the fields of a verdict stand in its evaluation, and every field of a record is
written, absent values as null. (What describes a call, and a program, is written without defaults.)
Numbers that JSON cannot hold, such as an infinite error, are null. Unknown fields are ignored.

    from_json(to_json(report)) == report
"""

from __future__ import annotations

import inspect
import math
from typing import Any, Literal

import msgspec

from cudal1_ci.records import version_1
from cudal1_ci.records.evaluation import Evaluation, Verdict
from cudal1_ci.records.report import Explanation, Listing, Report

SCHEMA_VERSION: Literal[2] = 2
READ_VERSIONS = (1, 2)
LISTED = ("target", "workloads", "skipped", "hint")
"""What a listing says of a target."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def to_json(published: Report | Listing | Evaluation | Explanation) -> bytes:
    """Encode a report, what `--list` found, a verdict without its candidate, or what `explain`
    says."""
    plain = _plain(published)
    if isinstance(published, Evaluation):
        del plain["candidate"]
    if isinstance(published, Listing):
        plain["entries"] = [{name: one[name] for name in LISTED} for one in plain["entries"]]
    return msgspec.json.encode({"schema_version": SCHEMA_VERSION} | plain)


def from_json(encoded: bytes, version: int = SCHEMA_VERSION) -> Report:
    """Decode a report of a version that is read.

    Raises:
        msgspec.MsgspecError: It is not JSON, or of another shape.
        RecursionError: It is nested too deeply.
    """
    plain = msgspec.json.decode(encoded)
    if version == 1:
        version_1.upgrade(plain)
    entries = version_1.objects(plain, "entries")
    for evaluation in (one for entry in entries for one in version_1.objects(entry, "evaluations")):
        names = [name for name in Verdict.__struct_fields__ if name in evaluation]
        evaluation["verdict"] = {name: evaluation.pop(name) for name in names}
    return msgspec.convert(plain, Report)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a report, as `schema/report.schema.json` has it."""
    schema = msgspec.json.schema(Report)
    forms = schema["$defs"]
    verdict, evaluation, report = forms.pop("Verdict"), forms["Evaluation"], forms["Report"]
    del evaluation["properties"]["verdict"]
    evaluation["properties"] |= verdict["properties"]
    evaluation["required"] = ["candidate", *verdict["required"]]
    report["properties"] = {"schema_version": {"const": SCHEMA_VERSION}} | report["properties"]
    report["required"] = ["schema_version", *report["required"]]
    return {"$schema": DIALECT, "title": "Report of cudal1-ci"} | schema


def _plain(value: Any) -> Any:
    if isinstance(value, Evaluation):
        fields = _fields(value)
        verdict = fields.pop("verdict")
        return verdict | fields
    if isinstance(value, msgspec.Struct):
        is_tagged = value.__struct_config__.tag is not None
        return msgspec.to_builtins(value) if is_tagged else _fields(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    names = zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True)
    return {encoded: _plain(getattr(record, name)) for encoded, name in names}


def schema_text() -> str:
    """Return the text of `schema/report.schema.json`."""
    schema = _with_plain_descriptions(json_schema())
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _with_plain_descriptions(schema: Any) -> Any:
    """Return a schema whose descriptions are not indented: Python keeps the indentation of
    docstrings before version 3.13."""
    if isinstance(schema, list):
        return [_with_plain_descriptions(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: inspect.cleandoc(one)
        if name == "description" and isinstance(one, str)
        else _with_plain_descriptions(one)
        for name, one in schema.items()
    }
