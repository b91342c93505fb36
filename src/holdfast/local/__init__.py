"""Things of this machine that several rooms need: who is at the other end of a socket and how confined, a
file replaced whole, keys of a home, a lock, tasks with an owner, our standard streams joined to a command's,
trees that somebody else filled, their names made fit to be shown, programs that nobody else can replace, and
those that end with whoever started them.

Imports: errors, home.
Open to other rooms: atomicfile, credentials, homekey, linux, listeners, lock,
loop, owned, peers, programs, relay, rundirs, shown, streams, tasks, trees.
"""
