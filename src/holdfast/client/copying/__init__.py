"""Files and trees copied between this machine and another: the sides of a copy, both directions, and a shell
on the other machine for the work that the protocol's file methods cannot do.

Imports: client, errors, wire.
Open to other rooms: copying, transfers.
"""
