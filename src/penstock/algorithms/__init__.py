"""Algorithms: rollouts in, weights out; they know nothing of streams, files or processes."""
