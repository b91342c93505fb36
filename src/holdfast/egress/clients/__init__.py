"""Hosts that a client of packages, of git or of a model is set up for, read from that client's own files.

`formats` reads texts, `packages` and `others` know where each client keeps what, `recipes` makes rules of it:
all pure. `surroundings` looks at this machine, and at nothing that the command could have written.

Imports: egress, errors, sandbox.policy.
Open to other rooms: recipes, surroundings.
"""
