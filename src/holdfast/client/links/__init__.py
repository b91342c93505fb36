"""One physical connection to a server: whom to dial, the framing, and what a link and its receiver know of
each other.

Imports: errors, local, log, rendezvous, tracing, wire.
Open to other rooms: ssh, target, transport.
"""
