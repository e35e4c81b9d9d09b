"""The log: append-only topics that many processes write and read."""
