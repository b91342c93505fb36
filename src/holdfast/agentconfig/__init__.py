"""Safe configuration for agent CLIs: what to write, and how to write it into a shared file."""
