"""One look at this machine, its agents and its sandbox, as values, and the findings from them.

Imports: confine, errors, local, sandbox.backends, sandbox.host, sandbox.plan, sandbox.policy,
sandbox.reasons.
Open to other rooms: facts, rules.
"""
