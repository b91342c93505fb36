"""The rules of the board as pure functions and tables: statuses and moves, retries, claims, budgets,
metrics, the rows that are kept, and the table of verbs: who may ask for what.

Imports: decoding, errors.
Open to other rooms: assign, budget, metrics, retry, rows, transitions, verbs.
"""
