"""Hosts that no rule decides about: connections wait while the user is asked.

`questions` decides and is pure: which questions are asked, and what an answer allows. `asker` sends the
questions of one command and lets its connections wait.

Imports: egress.
Open to other rooms: asker, questions.
"""
