"""The recorded vectors say what Python says; `clients/cpp` is held to them by its own tests."""

import json

import msgspec
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from penstock.model import delta
from penstock.model.policy import PolicyDescription
from penstock.model.tensors import Array, weights_sha256
from tests.cpp import CLIENT, script_of

SCRIPT = CLIENT / "tests" / "vectors.py"
vectors = script_of(SCRIPT)


def _read(name: str) -> tuple[dict[str, str], dict[str, Array]]:
    path = vectors.FOLDER / f"{name}.safetensors"
    with safe_open(path, "np") as file:
        return file.metadata(), load_file(path)


def test_every_body_and_head_is_recorded() -> None:
    wanted = {*vectors.descriptions(), "delta"}
    assert wanted == {path.stem for path in vectors.FOLDER.glob("*.safetensors")}, f"run {SCRIPT}"


@pytest.mark.parametrize("name", sorted(vectors.descriptions()))
def test_a_vector_says_what_python_says(name: str) -> None:
    words, file = _read(name)
    description: PolicyDescription = vectors.descriptions()[name]
    # as JSON: a field that is added or renamed must be recorded anew
    assert json.loads(words["description"]) == json.loads(msgspec.json.encode(description)), f"run {SCRIPT}"
    tensors = {key: tensor for key, tensor in file.items() if key.startswith(("policy/", "normalizer/"))}
    assert words["weights_sha256"] == weights_sha256(tensors)
    expected = vectors.outcome(description, file)
    assert expected.keys() == {key for key in file if key.startswith("expected/")}
    for key, array in expected.items():
        # another machine's BLAS adds in another order
        np.testing.assert_allclose(file[key], array, rtol=2e-5, atol=2e-6, err_msg=key)


def test_the_recorded_delta_applies() -> None:
    words, file = _read("delta")
    base, target = (
        {key.removeprefix(part): tensor for key, tensor in file.items() if key.startswith(part)}
        for part in ("base/", "target/")
    )
    found = delta.apply(base, file["delta"].tobytes())
    assert weights_sha256(base) == words["base_sha256"]
    assert weights_sha256(found) == weights_sha256(target) == words["target_sha256"]
