"""How the database became what it is, one file a step; `penstock.lineage.migrate` runs them."""
