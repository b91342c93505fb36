"""Turn a policy into a plan: inspect the disk once (`resolve`), decide the access at every path (`planner`),
choose the backend (`select`), derive Landlock's grants, and find what a program must read to run.

Imports: errors, sandbox.policy, sandbox.reasons.
Open to other rooms: covers, grants, losses, plan, planner, prerequisites, resolve, select.
"""
