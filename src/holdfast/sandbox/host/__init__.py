"""What this host can do, for the doctor and for managed configuration: probes in a process of their own, and
their results as values. A start does not ask them: `confine/sandboxes.py` tries, and `sandbox/plan/select.py`
chooses by how that went.

Imports: sandbox.backends, sandbox.kernel, sandbox.reasons.
Open to other rooms: hostfacts, probes.
"""
