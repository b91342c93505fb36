"""Holdfast runs coding agents and their commands, says what it enforced, and loses nothing they did."""

__version__ = "0.1.0"
