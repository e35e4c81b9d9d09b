"""The table of configuration keys for C++: `penstock.client.keys`, written as C++.

    python clients/cpp/keys.py        writes clients/cpp/src/key_table.cpp

Building the C++ client needs no Python, so the file lies in the repository; `tests/unit/test_cpp_keys.py` fails
where it no longer says what Python says.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.client import keys
from penstock.client.keys import Key

FILE = Path(__file__).parent / "src" / "key_table.cpp"


def written() -> str:
    """The whole file."""
    groups = "\n".join(f"      {{{_text(name)},\n{_rows(table, 8)}}}," for name, table in keys.GROUPS.items())
    return f"""\
// Made by clients/cpp/keys.py from src/penstock/client/keys.py; change it there.
#include "key_table.hpp"

namespace penstock {{

const Table& top_keys() {{
  static const Table table =
{_rows(keys.TOP, 6)};
  return table;
}}

const std::map<std::string, Table>& group_keys() {{
  static const std::map<std::string, Table> tables = {{
{groups}
  }};
  return tables;
}}

const Table& parameter_keys() {{
  static const Table table =
{_rows(keys.ALL_PARAMETERS, 6)};
  return table;
}}

{_names("trained_keys", keys.TRAINED)}
{_names("shape_parameters", keys.SHAPE_PARAMETERS)}
{_names("known_algorithms", keys.ALGORITHMS)}
}}  // namespace penstock
"""


def _rows(table: Mapping[str, Key], indent: int) -> str:
    rows = [f"{{{_text(name)}, {_key(key)}}}" for name, key in table.items()]
    return " " * indent + "{" + (",\n" + " " * (indent + 1)).join(rows) + "}"


def _key(key: Key) -> str:
    flags = f"{str(key.null).lower()}, {str(key.above).lower()}"
    return f"{{Kind::{key.kind}, {float(key.low)!r}, {float(key.high)!r}, {_list(key.choices)}, {flags}}}"


def _names(function: str, names: Iterable[str]) -> str:
    return f"""\
const std::vector<std::string>& {function}() {{
  static const std::vector<std::string> names = {_list(names)};
  return names;
}}
"""


def _list(texts: Iterable[str]) -> str:
    return "{" + ", ".join(_text(text) for text in texts) + "}"


def _text(text: str) -> str:
    return json.dumps(text)


if __name__ == "__main__":
    FILE.write_text(written())
