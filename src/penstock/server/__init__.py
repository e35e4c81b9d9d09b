"""The faces of a running server: REST, live feed and MCP. FastAPI, uvicorn and mcp are known here and nowhere else."""
