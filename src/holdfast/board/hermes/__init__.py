"""Import of boards of Hermes: its file, its rows, its history, and what each becomes here.

Imports: board, board.database, board.rules, board.verbs, errors.
Open to other rooms: hermesfile, intake.
"""
