"""Probes of what this host can do, for the doctor and for managed configuration; they run in a process of
their own and return values. A start does not use them: `confine/sandboxes.py` tries, and
`sandbox/plan/select.py` chooses by the outcome.

Imports: sandbox.backends, sandbox.kernel, sandbox.reasons.
Open to other rooms: hostfacts, probes.
"""
