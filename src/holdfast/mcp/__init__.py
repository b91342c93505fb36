"""MCP tools: for a worker, to report on its task; for a supervising agent, over a board and its workers."""
