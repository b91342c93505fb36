"""Local execution under a policy: it turns wire permissions into a policy, plans the policy on this host,
runs the launcher's client, manages the watcher, and gives the verdict at the end. The server, `exec`, the
doctor and agents all start commands through here.

Imports: decoding, egress, egress.asking, egress.bounds, egress.keys, errors, home, local, sandbox,
sandbox.backends, sandbox.kernel, sandbox.launcher, sandbox.plan, sandbox.policy, sandbox.protocol,
sandbox.reasons, sandbox.watcher, wire.
Open to other rooms: childenv, deniedlog, guard, keys, keysprocess, launch, loopback, names, owner,
permissions, sandboxes, starts, verdict, watching.
"""
