"""What a server says about processes: decoded, put in order without gaps, kept until somebody has read it,
and summed up. Everything here is pure.

Imports: decoding, errors, wire.
Open to other rooms: backlog, ordering, result.
"""
