"""The terminal of a worker's CLI: escape sequences, the screen they draw, the queries they contain, and safe
typing.

Imports: agents.evidence, errors.
Open to other rooms: escapes, keys, screen.
"""
