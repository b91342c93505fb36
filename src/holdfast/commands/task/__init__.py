"""`holdfast task`: the group, and its commands by purpose: change, look, review, runs.

Imports: board, board.rules, board.verbs, commands, decoding, dispatch, errors, local.
Open to other rooms: nothing of ours.
"""
