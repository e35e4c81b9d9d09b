"""The C++ client's table of keys is the Python client's; `clients/cpp/keys.py` writes it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "clients" / "cpp" / "keys.py"


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cpp_keys", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_table_says_what_python_says():
    script = _module()
    assert script.FILE.read_text() == script.written(), "run: python clients/cpp/keys.py"
