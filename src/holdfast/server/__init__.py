"""The exec server: connections enter by `edges`; `connection` and `router` lead to processes and files."""
