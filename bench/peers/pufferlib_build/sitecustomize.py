"""On the path only while PufferLib 3.0 is built: with NO_OCEAN=1 its setup.py reads a name it never sets."""

import builtins

builtins.c_extension_paths = []
