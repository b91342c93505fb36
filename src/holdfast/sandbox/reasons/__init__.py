"""Why something failed, in words: denials told from output and exit code, and the table of known texts.

Imports: errors, sandbox.policy.
Open to other rooms: denials, fingerprint_table, fingerprints.
"""
