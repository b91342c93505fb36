"""Things of this machine that several rooms need: who is at the other end of a socket, a file replaced
whole, a lock, tasks with an owner, our standard streams joined to a command's.

Imports: errors.
Open to other rooms: atomicfile, credentials, lock, loop, peers, relay, streams, tasks.
"""
