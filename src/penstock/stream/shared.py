"""How the topics that all runs share are kept, whoever makes them: a run, or the first who writes."""

from penstock.model import topics
from penstock.stream.base import TopicPolicy

DAY = 86_400.0
SHARED: dict[str, TopicPolicy] = {
    topics.RUNS: TopicPolicy(compact=True, synced=True),
    topics.COMMANDS: TopicPolicy(retention_seconds=365 * DAY, synced=True),
    topics.METRICS_TRAINING: TopicPolicy(retention_bytes=64 << 20, retention_seconds=7 * DAY),
    topics.METRICS_ACTORS: TopicPolicy(retention_bytes=64 << 20, retention_seconds=7 * DAY),
    topics.DEAD_LETTERS: TopicPolicy(retention_bytes=64 << 20, retention_seconds=30 * DAY),
}
CLAIMS = TopicPolicy(synced=True)
"""Who took which epoch, on Kafka: kept whole and for ever."""


def policy_of(topic: str) -> TopicPolicy:
    """Of a topic that is written before anybody made it; a dead letter must never fill the log."""
    return CLAIMS if topic == topics.CLAIMS else SHARED.get(topic, TopicPolicy())
