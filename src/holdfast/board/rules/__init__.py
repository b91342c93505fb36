"""The rules of the board as pure functions and tables: statuses and moves, retries, claims, budgets,
metrics, and the rows that are kept.

Imports: errors.
Open to other rooms: assign, budget, metrics, retry, rows, transitions, verbs.
"""
