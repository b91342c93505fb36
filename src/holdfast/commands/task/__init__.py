"""`holdfast task`: the group, and its commands by what they are for: change, look, review, runs.

Imports: agents.supervisor, board, board.rules, board.verbs, commands, dispatch, errors.
Open to other rooms: nothing of ours.
"""
