"""Tasks of a board, run by sandboxed workers."""
