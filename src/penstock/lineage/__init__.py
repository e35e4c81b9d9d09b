"""The database: an index of runs, commands and tokens. SQLAlchemy is known only here.

`database.Lineage` opens it; rows go in and out as the frozen data of `rows`. What `runs/<id>/` says is the
truth; commands and tokens are in the log as well, so that a lost database can be made again.
"""
