"""The reasons of failures: denials recognized by output, exit code and policy, and tables of known texts.
The wording of a denial for users is in `exec/outcome.py`.

Imports: errors, sandbox.policy.
Open to other rooms: denials, fingerprint_table, fingerprints.
"""
