"""Cursors: where a page ended, so that the next one goes on there whatever came or went meanwhile.

A cursor names the last row by its sort value and its key, not by a count. So each row whose sort value stays
the same is seen exactly once; only one that moves past the cursor itself can be missed or seen again.
"""

import base64
import binascii
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, and_, false, or_

from penstock.errors import ConfigError

MOST = 500
"""The longest page."""


def encode(sort: str, value: Any, key: str | int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([sort, value, key])).decode().rstrip("=")


def decode(text: str, sort: str, kind: type, key_kind: type) -> tuple[Any, Any]:
    """Sort value and key; raise ConfigError for a cursor of another order, or of nobody."""
    try:
        content = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        made_for, value, key = msgspec.json.decode(content, type=tuple[str, kind | None, key_kind])  # type: ignore[valid-type]
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(
            "cursor is none of ours; leave it out for the first page, then pass on `next` as it is"
        ) from error
    if made_for != sort:
        raise ConfigError(f"cursor belongs to a list sorted by {made_for}; leave it out for the first page")
    return value, key


def after(
    column: "Column[Any]", key: "Column[Any]", value: Any, last: Any, descending: bool
) -> ColumnElement[bool]:
    """What comes after the row (value, last), with nothing-values last both ways."""
    if value is None:
        return and_(column.is_(None), key > last)
    beyond = column < value if descending else column > value
    nothing = column.is_(None) if column.nullable else false()
    return or_(beyond, and_(column == value, key > last), nothing)


def checked_limit(limit: int) -> int:
    if not 1 <= limit <= MOST:
        raise ConfigError(f"limit is {limit}; ask for 1 to {MOST} at once")
    return limit
