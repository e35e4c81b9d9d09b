"""The compiled messages are those of the .proto file."""

from importlib.resources import files
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

FOLDER = Path(str(files("penstock.proto")))


def test_the_compiled_description_is_fresh(tmp_path: Path) -> None:
    made = tmp_path / "made.binpb"
    source = FOLDER / "penstock_v1.proto"
    assert protoc.main(["protoc", f"-I{FOLDER}", f"--descriptor_set_out={made}", str(source)]) == 0
    committed = descriptor_pb2.FileDescriptorSet.FromString((FOLDER / "penstock_v1.binpb").read_bytes())
    assert descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()) == committed, "make proto"
