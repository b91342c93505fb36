"""The kernel's interfaces, one module each: namespaces, mounts, Landlock, seccomp, system calls by number.
No policy here: they do what a plan says.

Imports: sandbox, sandbox.plan.
Open to other rooms: kernel, landlock, namespaces, seccomp, view.
"""
