"""Version 0.0 of a client's policy: fresh weights, before any learner has claimed the run.

Writes to: `model_updates.<run>`, as epoch 0. A learner that starts fresh has the same weights at its step 0.
"""

from penstock.loop.policies import Publisher
from penstock.loop.registry import RunRecord
from penstock.loop.trainer import Trainer
from penstock.model.clients import shape_of
from penstock.model.version import Version
from penstock.stream.base import Stream

FIRST = Version(0, 0)


def publish_first(record: RunRecord, stream: Stream) -> None:
    """Make and publish it; done twice, it is the same version with the same weights."""
    trainer = Trainer(record.run, record.spec)
    trainer.begin(shape_of(record.spec.environment.kwargs).spaces())
    trainer.version = FIRST
    Publisher(stream, record.run, FIRST.epoch).publish(trainer.policy({}, final=False))
