"""`doctor assert`: claims about this machine, tried by every route a command can take, and the proof of it
on this boot.

Imports: agentconfig, doctor.explain, errors, local, sandbox.policy, sandbox.reasons.
Open to other rooms: assertion, claims.
"""
