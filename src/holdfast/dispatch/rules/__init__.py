"""What a dispatcher decides, as pure functions and tables: rounds, steps of a run, worker profiles, prompts,
outcomes, liveness, load.

Imports: agents.catalog, agents.evidence, board.rules, errors.
Open to other rooms: dispatcherstatus, liveness, manifest, outcome, pressure, profiles, prompts,
reminders, rounds, runsteps.
"""
