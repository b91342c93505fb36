"""What changed in a directory that a worker owns, looked at from outside and never obeyed: a walk by
descriptor, what a commit held (`git`, confined), and the difference as a bounded patch.

Imports: client, errors, local, sandbox.policy.
Open to other rooms: baseline, changes, git, manifest.
"""
