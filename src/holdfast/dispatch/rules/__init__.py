"""What a dispatcher decides, as pure functions and tables: rounds, steps of a run, worker profiles, prompts,
outcomes, liveness, load, environments.

Imports: agents.catalog, agents.evidence, agents.fleet, board.rules, decoding, egress, egress.bounds,
egress.clients, errors, sandbox.policy, wire.
Open to other rooms: dispatcherstatus, fleet, inheritance, liveness, pressure, profiles, prompts,
reminders, rounds, runsteps.
"""
