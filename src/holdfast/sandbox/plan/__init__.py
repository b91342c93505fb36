"""A policy becomes a plan: one look at the disk (`resolve`), every path with its access (`planner`), who
enforces it (`select`), what Landlock can say of it, and what a program must read to run.

Imports: errors, sandbox.policy, sandbox.reasons.
Open to other rooms: covers, grants, losses, plan, planner, prerequisites, resolve, select.
"""
