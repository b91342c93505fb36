"""`doctor assert`: claims about this machine, tried by every route a command can take, with proofs for this
boot.

Imports: agentconfig, doctor.explain, errors, local, sandbox.policy, sandbox.reasons.
Open to other rooms: assertion, claims.
"""
