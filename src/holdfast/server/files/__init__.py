"""File calls: plain ones, and those under a policy, which are executed by a confined worker process.

Imports: confine, decoding, errors, home, sandbox.kernel, sandbox.plan, sandbox.policy, sandbox.protocol,
server.codex, wire.
Open to other rooms: confinedfiles, files, handles, mounts, walk, watch.
"""
