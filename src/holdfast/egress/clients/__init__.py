"""Hosts that a package, git or model client is configured for, read from that client's own files.

`formats` parses texts, `packages` and `others` know where each client keeps its settings, `recipes` turns
them into rules: all pure. `surroundings` reads this machine's files, except those that the command could have
written.

Imports: egress, errors, sandbox.policy.
Open to other rooms: recipes, surroundings.
"""
