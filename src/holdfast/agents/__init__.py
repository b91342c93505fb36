"""Supervision of external agent CLIs: what they are doing, and the proof of it."""
