"""Contract test classes that every adapter passes, and small real environments for tests."""
