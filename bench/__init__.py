"""Measures the exec server against the reference on this machine, in the same run: `python -m bench`."""
