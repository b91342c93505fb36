"""Files and trees copied between this machine and another: who is who, both directions, and the work for a
shell over there that the protocol's file methods cannot do.

Imports: client, errors, wire.
Open to other rooms: copying, transfers.
"""
