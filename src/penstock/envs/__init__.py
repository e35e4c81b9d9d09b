"""An environment from its id, stepped in plain loops into preallocated columns."""
