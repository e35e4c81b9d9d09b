"""What a run's log says of its past. Reads from: `history.<run>`."""

from penstock.model import topics
from penstock.model.history import Entry, decode_entry
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader


def read_history(stream: Stream, run: str) -> list[Entry]:
    """Every claim and update, oldest first."""
    reader = RecordReader(stream, topics.history(run), decode_entry)
    try:
        return [entry for batch in reader.drain(1024) for _, entry in batch]
    finally:
        reader.close()
