"""The messages of `penstock.v1`, made from a compiled description when first imported.

No generated code: that would tie every installation to the protobuf release that generated it (ADR 11).
`make proto` compiles `penstock_v1.proto`; a test fails where the two differ.
"""

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTOCOL = 1
SERVICE = "penstock.v1.Gateway"

_found = descriptor_pb2.FileDescriptorSet.FromString((files(__package__) / "penstock_v1.binpb").read_bytes())
_messages: dict[str, Any] = message_factory.GetMessages(list(_found.file), pool=descriptor_pool.Default())


def _message(name: str) -> Any:
    return _messages[f"penstock.v1.{name}"]


Version = _message("Version")
OpenRequest, OpenReply = _message("OpenRequest"), _message("OpenReply")
Trajectory, Figures = _message("Trajectory"), _message("Figures")
SendRequest, SendReply = _message("SendRequest"), _message("SendReply")
FetchRequest, FetchReply = _message("FetchRequest"), _message("FetchReply")
ActRequest, ActReply = _message("ActRequest"), _message("ActReply")

METHODS: dict[str, tuple[Any, Any, bool]] = {
    "Open": (OpenRequest, OpenReply, False),
    "Send": (SendRequest, SendReply, False),
    "Fetch": (FetchRequest, FetchReply, True),
    "Act": (ActRequest, ActReply, False),
}
"""Method → (request, reply, whether replies are a stream)."""


def path(method: str) -> str:
    return f"/{SERVICE}/{method}"
