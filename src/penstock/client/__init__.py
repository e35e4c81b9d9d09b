"""The library an application links: NumPy and gRPC only. See docs/client.md."""
