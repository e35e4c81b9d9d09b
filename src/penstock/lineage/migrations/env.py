"""Run by alembic: takes the connection that `penstock.lineage.migrate` has opened, in its transaction."""

from alembic import context

from penstock.lineage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=context.config.attributes["version_table"],
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
