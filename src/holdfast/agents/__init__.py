"""Supervision of external agent CLIs: what they are doing, and the evidence for it."""
