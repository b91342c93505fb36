"""Local execution under a policy: wire permissions to policy, policy to plan on this host, the launcher's
client, the watcher's life, and the verdict at the end. Server, `exec`, doctor and agents all start
commands through here.

Imports: decoding, egress, egress.asking, egress.bounds, egress.keys, errors, home, local, sandbox,
sandbox.backends, sandbox.kernel, sandbox.launcher, sandbox.plan, sandbox.policy, sandbox.protocol,
sandbox.reasons, sandbox.watcher, wire.
Open to other rooms: childenv, deniedlog, guard, keys, keysprocess, launch, loopback, names, owner,
permissions, sandboxes, starts, verdict, watching.
"""
