"""What a dispatcher decides, as pure functions and tables: rounds, steps of a run, worker profiles, prompts,
outcomes, liveness, load.

Imports: agents.catalog, agents.evidence, board.rules, egress, errors, sandbox.policy, wire.
Open to other rooms: dispatcherstatus, inheritance, liveness, outcome, pressure, profiles, prompts,
reminders, rounds, runsteps.
"""
