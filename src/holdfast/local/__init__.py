"""Things of this machine that several rooms need: who is at the other end of a socket, a file replaced
whole, our standard streams joined to a command's.

Imports: errors.
Open to other rooms: atomicfile, credentials, loop, peers, relay, streams.
"""
