"""Things of this machine that several rooms need: who is at the other end of a socket, writing below a
directory that a worker owns.

Imports: nothing of ours.
Open to other rooms: nofollow, peers.
"""
