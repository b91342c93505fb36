"""One physical connection to a server: the target, the framing, and the interface between a link and its
receiver.

Imports: errors, local, log, rendezvous, tracing, wire.
Open to other rooms: ssh, target, transport.
"""
