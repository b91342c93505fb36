"""Why something failed: denials told from output, exit code and policy, and tables of known texts. What a
person is told of a denial is worded in `exec/outcome.py`.

Imports: errors, sandbox.policy.
Open to other rooms: denials, fingerprint_table, fingerprints.
"""
