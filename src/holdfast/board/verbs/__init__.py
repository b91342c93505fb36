"""The verbs of the board, each written once over a transaction. `board.store` gives each verb a transaction
of its own; no other module calls them.

Imports: board.database, board.rules, decoding, errors.
Open to other rooms: boards, claims, files, hostquestions, inbox, ledger, lists, messages, reviews, runs,
tasks, transfer.
"""
