"""The first tables."""

from alembic import op
from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, Text

revision = "0001"
down_revision = None

WORD = Text().with_variant(Text(collation="C"), "postgresql")
COUNT = BigInteger().with_variant(Integer, "sqlite")
JSONS = JSON(none_as_null=True)


def upgrade() -> None:
    op.create_table("projects", Column("project", WORD, primary_key=True))
    op.create_table("groups", Column("group", WORD, primary_key=True))
    op.create_table(
        "specs",
        Column("sha256", WORD, primary_key=True),
        Column("spec", JSONS, nullable=False),
    )
    op.create_table(
        "runs",
        Column("run", WORD, primary_key=True),
        Column("state", WORD, nullable=False),
        Column("environment", WORD, nullable=False),
        Column("algorithm", WORD, nullable=False),
        Column("seed", Text, nullable=False),
        Column("created_at", Float(53), nullable=False),
        Column("started_at", Float(53)),
        Column("ended_at", Float(53)),
        Column("steps", COUNT, nullable=False),
        Column("episodes", COUNT, nullable=False),
        Column("mean_return", Float(53)),
        Column("updates", COUNT, nullable=False),
        Column("version", Text),
        Column("seconds", Float(53), nullable=False),
        Column("steps_per_second", Float(53), nullable=False),
        Column("weights_sha256", Text),
        Column("checkpoint", Text),
        Column("reason", Text),
        Column("actors", COUNT, nullable=False),
        Column("restarts", COUNT, nullable=False),
        Column("managed", Boolean, nullable=False),
        Column("project", WORD, ForeignKey("projects.project"), nullable=False),
        Column("group", WORD, ForeignKey("groups.group")),
        Column("tags", JSONS, nullable=False),
        Column("note", Text, nullable=False),
        Column("stream", Text, nullable=False),
        Column("spec_sha256", WORD, ForeignKey("specs.sha256"), nullable=False),
        Column("desired", JSONS, nullable=False),
        Column("position", JSONS, nullable=False),
        Column("disk_bytes", COUNT, nullable=False),
        Column("words", Text, nullable=False),
        Column("revision", COUNT, nullable=False),
        Index("runs_by_state", "state"),
        Index("runs_by_project", "project"),
        Index("runs_by_group", "group"),
        Index("runs_by_spec", "spec_sha256"),
        Index("runs_by_created_at", "created_at"),
        Index("runs_by_revision", "revision"),
    )
    op.create_table(
        "tags",
        Column("run", WORD, ForeignKey("runs.run", ondelete="CASCADE"), primary_key=True),
        Column("tag", WORD, primary_key=True),
        Index("tags_by_tag", "tag"),
    )
    op.create_table(
        "states",
        Column("sequence", COUNT, primary_key=True, autoincrement=True),
        Column("run", WORD, ForeignKey("runs.run", ondelete="CASCADE"), nullable=False),
        Column("state", WORD, nullable=False),
        Column("reason", Text),
        Column("at", Float(53), nullable=False),
        Index("states_by_run", "run", "sequence"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "checkpoints",
        Column("run", WORD, ForeignKey("runs.run", ondelete="CASCADE"), primary_key=True),
        Column("version", WORD, primary_key=True),
        Column("at", Float(53), nullable=False),
        Column("bytes", COUNT, nullable=False),
        Column("steps", COUNT),
        Column("best", Boolean, nullable=False),
    )
    op.create_table(
        "evaluations",
        Column("id", WORD, primary_key=True),
        Column("run", WORD, ForeignKey("runs.run", ondelete="CASCADE"), nullable=False),
        Column("state", WORD, nullable=False),
        Column("checkpoint", Text, nullable=False),
        Column("episodes", COUNT, nullable=False),
        Column("seed", Text, nullable=False),
        Column("at", Float(53), nullable=False),
        Column("mean", Float(53)),
        Column("std", Float(53)),
        Column("returns", JSONS, nullable=False),
        Column("lengths", JSONS, nullable=False),
        Column("seconds", Float(53)),
        Column("reason", Text),
        Index("evaluations_by_run", "run", "at"),
        Index("evaluations_by_state", "state"),
    )
    op.create_table(
        "commands",
        Column("sequence", COUNT, primary_key=True, autoincrement=True),
        Column("id", WORD, nullable=False),
        Column("run", WORD, nullable=False),
        Column("verb", WORD, nullable=False),
        Column("arguments", JSONS, nullable=False),
        Column("who", WORD, nullable=False),
        Column("at", Float(53), nullable=False),
        Column("outcome", WORD, nullable=False),
        Column("reason", Text),
        Column("old", JSONS),
        Column("new", JSONS),
        Column("applied_at", Float(53), nullable=False),
        Column("request", Text, nullable=False),
        Index("commands_by_id", "id", unique=True),
        Index("commands_by_run", "run", "sequence"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "tokens",
        Column("id", WORD, primary_key=True),
        Column("name", Text, nullable=False),
        Column("role", Text, nullable=False),
        Column("sha256", WORD, nullable=False),
        Column("created_at", Float(53), nullable=False),
        Column("created_by", Text, nullable=False),
        Column("expires_at", Float(53)),
        Column("revoked_at", Float(53)),
        Index("tokens_by_sha256", "sha256", unique=True),
    )
    op.create_table(
        "positions",
        Column("stream", WORD, primary_key=True),
        Column("position", JSONS, nullable=False),
    )
    op.create_table(
        "counters",
        Column("name", WORD, primary_key=True),
        Column("value", COUNT, nullable=False),
    )
