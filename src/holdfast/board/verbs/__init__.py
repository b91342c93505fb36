"""What can be done to a board, written once over a transaction. `board.store` gives each verb a transaction
of its own; nobody else calls them.

Imports: board.database, board.rules, errors.
Open to other rooms: boards, claims, files, inbox, ledger, lists, liveness, messages, places, reviews,
runs, tasks, transfer, unverified, usage.
"""
