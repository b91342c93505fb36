"""This machine explained: facts, causes of failures, the escape suite, comparisons, assertions."""
