"""The exec server: connections enter by `edges`; `connection` and `router` lead on to processes and files."""
