"""What a machine cannot do: said and passed over at home, a failure in CI, which must not be green for that."""

import os
from typing import NoReturn

import pytest


def lacking(message: str) -> NoReturn:
    """`message` says what to do about it."""
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
