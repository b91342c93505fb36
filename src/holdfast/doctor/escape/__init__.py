"""The escape suite: attempts to get out of the sandbox, their scene, the runs by backend and user, and the
score.

Imports: confine, decoding, doctor.compare, doctor.facts, errors, sandbox, sandbox.backends, sandbox.kernel,
sandbox.launcher, sandbox.plan, sandbox.policy, sandbox.reasons, server.
Open to other rooms: checkup, scorecard.
"""
