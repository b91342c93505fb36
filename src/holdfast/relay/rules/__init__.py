"""The decisions of a relay, as pure functions and tables: messages of the registry, access rights, signed
addresses, rate limits, the routing of frames to sockets, and the messages between nodes.

Imports: decoding, errors, wire.
Open to other rooms: access, crossing, messages, ratelimit, signedurl, switchboard.
"""
