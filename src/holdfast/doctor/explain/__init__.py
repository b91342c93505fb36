"""Read the log of a failure for known causes: tables of texts, redaction, and confirmation on this machine.

Imports: sandbox.host, sandbox.reasons.
Open to other rooms: explanation, redaction.
"""
