"""Penstock measured side by side with its peers. Start with `python -m bench --help`."""
