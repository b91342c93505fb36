"""A terminal as a worker's CLI sees it: escape sequences, the screen they draw, the queries they ask, and
how to type safely.

Imports: agents.evidence, errors.
Open to other rooms: escapes, keys, screen.
"""
