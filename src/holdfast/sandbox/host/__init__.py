"""What this host can do: probes in a process of their own, and their results as values.

Imports: sandbox.backends, sandbox.kernel, sandbox.reasons.
Open to other rooms: hostfacts, probes.
"""
