"""Process events from a server: decoded, put in order without gaps, kept until they are read, and summed up.
Everything here is pure.

Imports: decoding, errors, wire.
Open to other rooms: backlog, ordering, result.
"""
