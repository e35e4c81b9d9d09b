"""Words: frozen data with no I/O."""
