"""Things of this machine that several rooms need: who is at the other end of a socket, a file replaced
whole.

Imports: nothing of ours.
Open to other rooms: atomicfile, credentials, lock, peers, tasks.
"""
