"""One configuration file for two clients: what Python takes or refuses, C++ takes or refuses, in the same words."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.client import keys
from penstock.client.keys import Key
from penstock.client.settings import load
from penstock.errors import ConfigError
from tests.cpp import ROOT, build

pytestmark = pytest.mark.timeout(2400)  # the first build of a session may be in it

SHAPE = {"act_dim": 4, "input_size": 8}
BASE = {"client_id": "pump", "algorithm_name": "PPO", "algorithm_parameters": SHAPE}
SAC = {"algorithm_name": "SAC", "act_limit": 2.0}
REST_IS_FREE = re.compile(r", not .*|; (did you mean|known).*| is not JSON: .*", re.DOTALL)
"""Both show the value, look for the nearest key and describe JSON in ways of their own."""


def with_(**changes: Any) -> str:
    return json.dumps({**BASE, **changes})


def parameters(**changes: Any) -> str:
    return with_(algorithm_parameters={**SHAPE, **changes})


RIGHT = [
    with_(),
    json.dumps({"client_id": "known-there"}),
    json.dumps({"client_id": "known-there", "fallback": {"action": [0.5, 1]}}),
    with_(**SAC, fallback={"action": [0, 0.5, 2, -2]}),
    with_(continuous=True, act_limit=0.5),
    with_(algorithm_name="mine", algorithm_parameters={**SHAPE, "temperature": {"any": "thing"}}),
    with_(algorithm_parameters={"act_dim": 128.0}, observation_shape=[128, 8], masked=True,
          network={"body": "items", "hidden": [32, 16], "activation": "relu"}),
    with_(network={"body": "cnn", "convolutions": [[4, 4, 2]], "shared": True, "normalize_observations": True}),
    with_(token="given", train_server_address="gateway.example:1", insecure=True),
    with_(token=" given\n", train_server_address="[::1]:65535"),
    with_(token="given", train_server_address="10.0.0.1:50051", tls={}),
    with_(deadline_ms=2, flush_seconds=1, poll_seconds=30, send_frequency=1e2, max_traj_length=65536, mode="shadow",
          inference="remote", spool={"folder": "/somewhere", "max_bytes": 65536}, fallback={"action": 3}),
    with_(mode="off", type="onpolicy", act_limit=1e6, spool={}, fallback={}, network={}),
    parameters(seed=2**63 - 1, target_kl=None),
    parameters(learning_rate=0.001, normalize_advantages=True, n_step="whatever the gateway says"),
]  # fmt: skip

WRONG = [
    "", "{", "[]", '"x"', "null", "[" * 100_000, with_() + "x",
    '{"client_id": "pump", "act_limit": NaN}', '{"client_id": "pump", "act_limit": -Infinity}',
    '{"client_id": "pump", "algorithm_parameters": {"learning_rate": 1e400}}',
    with_(fallback={"action": json.loads("[" * 40 + "]" * 40)}),
    "{}", with_(client_id="../up"), with_(client_id="a" * 65), with_(client_id="é"), with_(client_id=None),
    with_(clientid="x"), with_(spool={"max_byte": 1}), parameters(gama=0.9), with_(network={"layers": 2}),
    with_(send_frequency=10**30), with_(train_server_address="localhost"),
    with_(train_server_address="http://x:1"), with_(train_server_address="x:0"), with_(train_server_address="x:65536"),
    with_(train_server_address="[::1]"), with_(train_server_address=":1"), with_(train_server_address="a" * 400 + ":1"),
    with_(algorithm_parameters={"act_dim": 4}), with_(algorithm_parameters={"input_size": 4}),
    with_(observation_shape=[2, 2]), with_(observation_shape=[2] * 9),
    with_(algorithm_parameters={"act_dim": 4}, observation_shape=[1 << 20] * 8),
    with_(algorithm_parameters={"act_dim": 4}, observation_shape=[1 << 19, 3]),
    with_(algorithm_name="mine", algorithm_parameters={"act_dim": "x", "input_size": 8}),
    with_(algorithm_name="mine", algorithm_parameters={"act_dim": 4, "input_size": None}),
    parameters(seed=2**63), parameters(seed=9223372036854775807.0), parameters(seed=2**64),
    with_(fallback={"action": 4}), with_(fallback={"action": -1}), with_(fallback={"action": 1.0}),
    with_(fallback={"action": True}), with_(fallback={"action": [1]}), with_(fallback={"action": "first"}),
    json.dumps({"client_id": "known-there", "fallback": {"action": "first"}}),
    json.dumps({"client_id": "known-there", "fallback": {"action": []}}),
    with_(**SAC, fallback={"action": [0, 0, 0]}), with_(**SAC, fallback={"action": [0, 0, 0, 2.0000000001]}),
    with_(masked=True, continuous=True), with_(algorithm_name="sac", continuous=False),
    with_(tls={"ca": "/nowhere.pem"}), with_(tls={"cert": "/nowhere.pem"}), with_(tls={"key": "/nowhere.pem"}),
    with_(tls={"ca": "/"}), with_(tls={"ca": "/etc/passwd"}), with_(tls={"cert": "/etc/passwd", "key": "/etc/passwd"}),
    with_(token="a", token_file="b"), with_(token_file="/nowhere"), with_(token_file="/"),
    with_(token="two words"), with_(token="\u00a0blank"), with_(token="x" * 5000), with_(token=["secret"]),
    with_(token="given", train_server_address="gateway.example:1"),
    with_(token="given", train_server_address="127.evil.example:1", insecure=False),
]  # fmt: skip


def beyond(key: Key) -> list[Any]:
    """Values that this key may not have: of other types, and just outside its range."""
    if key.kind == "any":
        return []
    wrong: list[Any] = [[], {"a": 1}, "", [None], *([] if key.null else [None])]
    if key.kind == "group":
        return [7, "x", [], None]
    if key.kind == "flag":
        return [*wrong, 1, "true"]
    if key.kind == "text":
        return [*wrong, 3, True, *(["none of them"] if key.choices else [])]
    if key.kind == "shape":
        return [*wrong, 3, [0], [1.5], [True], [1 << 21], [1] * 9]
    low = key.low if key.above else key.low - 1
    return [*wrong, True, "1", low, key.high + 1, *([1.5] if key.kind == "whole" else [])]


def every_key() -> list[str]:
    found = [with_(**{name: value}) for name, key in keys.TOP.items() for value in beyond(key)]
    for group, table in {**keys.GROUPS, "algorithm_parameters": keys.PARAMETERS}.items():
        base = SHAPE if group == "algorithm_parameters" else {}
        found += [
            with_(**{group: {**base, name: value}}) for name, key in table.items() for value in beyond(key)
        ]
    return found


@pytest.fixture(scope="module")
def program() -> Path:
    return build(ROOT / "build" / "cpp") / "tests" / "penstock_configured"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)


def in_cpp(program: Path, texts: list[str]) -> list[dict[str, Any]]:
    assert not any("\n" in text for text in texts)
    done = subprocess.run(
        [program],
        input="".join(f"{text}\n" for text in texts),
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def in_python(folder: Path, text: str) -> dict[str, Any]:
    file = folder / "conf.json"
    file.write_text(text)
    try:
        got = load(file)
    except ConfigError as error:
        return {"refused": str(error).replace(str(file), "conf.json")}
    shape = got.shape and {name: getattr(got.shape, name) for name in got.shape.__slots__}
    given = got.safe_action
    safe = [] if given is None else given if isinstance(given, list) else [given]
    told = {name: getattr(got, name) for name in got.__slots__}
    told |= {
        "shape": shape,
        "trained": json.loads(got.trained),
        "tls": got.tls is not None,
        "safe_action": safe,
    }
    return {"accepted": json.loads(json.dumps(told, default=str))}


def test_what_python_takes_cpp_takes_and_understands_alike(program: Path, tmp_path: Path) -> None:
    for text, there in zip(RIGHT, in_cpp(program, RIGHT), strict=True):
        here = in_python(tmp_path, text)
        assert "accepted" in here, (text, here)
        assert there == here, text


def test_what_python_refuses_cpp_refuses_in_the_same_words(program: Path, tmp_path: Path) -> None:
    texts = WRONG + every_key()
    assert len(texts) > 400
    for text, there in zip(texts, in_cpp(program, texts), strict=True):
        here = in_python(tmp_path, text)
        assert list(there) == list(here) == ["refused"], (text[:300], here, there)
        assert REST_IS_FREE.sub("", there["refused"]) == REST_IS_FREE.sub("", here["refused"]), text[:300]
        assert "secret" not in here["refused"] + there["refused"]
