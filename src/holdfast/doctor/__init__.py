"""Explains this machine: facts, causes of failures, the escape suite, comparisons, assertions."""
