"""The log of a failure, read for known causes: tables of texts, redaction, and confirmation against this
machine.

Imports: sandbox.host, sandbox.reasons.
Open to other rooms: explanation, redaction.
"""
