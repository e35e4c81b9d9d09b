"""Rows of tables to frozen data and back."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec

from penstock.lineage.rows import CheckpointRow, CommandRow, EvaluationRow, RunRow, TokenRow

Values = dict[str, Any]

ELSEWHERE = ("spec", "revision")
"""What of a RunRow is no column that put_run compares."""


def run_values(row: RunRow) -> Values:
    """The columns of `runs` but the revision."""
    values = {field.name: getattr(row, field.name) for field in fields(row) if field.name not in ELSEWHERE}
    words = (row.run, row.environment, row.algorithm, row.note, *row.tags)
    more = {"seed": str(row.seed), "tags": list(row.tags), "spec_sha256": spec_sha256(row.spec)}
    return _storable(values | more | {"words": "\n".join(words).lower()})


def run_row(values: Mapping[str, Any], spec: Values) -> RunRow:
    known = dict(values)
    del known["spec_sha256"], known["words"]
    known["seed"] = int(known["seed"])
    known["tags"] = tuple(known["tags"])
    return RunRow(**known, spec=spec)


def spec_sha256(spec: Values) -> str:
    return hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()


def command_row(values: Mapping[str, Any]) -> CommandRow:
    return CommandRow(**values)


def checkpoint_row(values: Mapping[str, Any]) -> CheckpointRow:
    return CheckpointRow(**values)


def token_row(values: Mapping[str, Any]) -> TokenRow:
    return TokenRow(**values)


def evaluation_row(values: Mapping[str, Any]) -> EvaluationRow:
    known = dict(values)
    known["seed"] = int(known["seed"])
    known["returns"], known["lengths"] = tuple(known["returns"]), tuple(known["lengths"])
    return EvaluationRow(**known)


def plain_values(row: Any, *leave_out: str) -> Values:
    """The columns of a row whose fields are its columns."""
    values = {field.name: getattr(row, field.name) for field in fields(row) if field.name not in leave_out}
    if "seed" in values:
        values["seed"] = str(values["seed"])
    return _storable(values)


def _storable(values: Values) -> Values:
    return {name: clean(value) for name, value in values.items()}


def clean(value: Any) -> Any:
    """What every database takes: no number that is none, and in text no NUL, which PostgreSQL refuses."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value
