"""One script and one list of pins for each peer; the scripts run in the peer's own virtual environment."""
