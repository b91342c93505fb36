"""Finds changes in a directory that a worker can write, from outside and without obeying its content: a walk
by descriptor, the content of a commit (`git`, confined), and the difference as a bounded patch.

Imports: client, errors, local, sandbox.policy.
Open to other rooms: baseline, changes, git, manifest.
"""
