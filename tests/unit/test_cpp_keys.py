"""The C++ client's table of keys is the Python client's; `clients/cpp/keys.py` writes it."""

from tests.cpp import CLIENT, script_of


def test_the_table_says_what_python_says():
    script = script_of(CLIENT / "keys.py")
    assert script.FILE.read_text() == script.written(), "run: python clients/cpp/keys.py"
