"""The client's reading of a description cannot drift from the platform's."""

import dataclasses
import typing

import msgspec
import pytest

from penstock.client import description as here
from penstock.errors import Damaged
from penstock.model import policy, spaces
from penstock.testing import policies

PAIRS = [
    (here.Description, policy.PolicyDescription),
    (here.NetworkSpec, policy.NetworkSpec),
    (here.Spaces, spaces.Spaces),
    (here.ActionLayout, spaces.ActionLayout),
    (here.ObservationLayout, spaces.ObservationLayout),
    (here.Leaf, spaces.Leaf),
    (here.Column, spaces.Column),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_fields_and_defaults_are_the_same(ours: type, theirs: type):
    mine = {f.name: f.default for f in dataclasses.fields(ours)}
    wanted = {f.name: f.default for f in msgspec.structs.fields(theirs)}
    assert list(mine) == list(wanted)
    for name, default in wanted.items():
        assert (mine[name] is dataclasses.MISSING) == (default is msgspec.NODEFAULT), name
        if default is not msgspec.NODEFAULT:
            assert mine[name] == default, name


def test_choices_of_words_are_the_same():
    mine, wanted = typing.get_type_hints(here.Description), typing.get_type_hints(policy.PolicyDescription)
    assert typing.get_args(mine["head"]) == typing.get_args(wanted["head"])
    for ours, theirs, field in (
        (here.NetworkSpec, policy.NetworkSpec, "body"),
        (here.NetworkSpec, policy.NetworkSpec, "activation"),
        (here.ActionLayout, spaces.ActionLayout, "kind"),
        (here.Leaf, spaces.Leaf, "kind"),
    ):
        assert typing.get_args(typing.get_type_hints(ours)[field]) == typing.get_args(
            typing.get_type_hints(theirs)[field]
        )


@pytest.mark.parametrize("action", [policies.SIX, policies.MANY, policies.BOX])
@pytest.mark.parametrize("columns", [policies.VECTOR, policies.MIXED, policies.ITEMS])
def test_what_the_platform_writes_is_read_back(
    action: spaces.ActionLayout, columns: dict[str, spaces.Column]
):
    leaf = spaces.Leaf(("a", 1), "box", "observations", 0, 5, shape=(5,))
    written = policy.PolicyDescription(
        "ppo", "categorical", spaces.Spaces(spaces.ObservationLayout(columns, (leaf,)), action, False),
        policy.NetworkSpec(hidden=(3, 4), activation="relu"),
    )  # fmt: skip
    text = msgspec.json.encode(written).decode()
    read = here.read(text)
    assert msgspec.to_builtins(written) == msgspec.to_builtins(read)
    assert read.spaces.observation.images == written.spaces.observation.images
    assert read.spaces.action.choices == written.spaces.action.choices


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"algorithm": 1}', "[" * 100_000, "x" * (2 << 20)], ids=lambda text: text[:12]
)
def test_what_is_no_description_is_damaged(text: str):
    with pytest.raises(Damaged, match="description"):
        here.read(text)
