"""Services of this machine that several rooms need: the user and the confinement of a peer process, atomic
file replacement, keys of a home, a lock, tasks with an owner, our standard streams joined to those of a
command, walks through directory trees that other processes filled, names escaped for display, programs that
no other user can replace, and programs that end with the process that started them.

Imports: errors, home.
Open to other rooms: atomicfile, credentials, homekey, linux, listeners, lock,
loop, owned, peers, programs, relay, rundirs, shown, streams, tasks, trees.
"""
