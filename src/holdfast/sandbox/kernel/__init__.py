"""The kernel's interfaces, one module each: namespaces, mounts, Landlock, seccomp, control groups, system
calls by number. They contain no policy: they carry out what a plan says.

Imports: sandbox.plan.
Open to other rooms: cgroup, dnotify, inotify, kernel, landlock, namespaces, resolver, seccomp,
sockowner, usage, view.
"""
