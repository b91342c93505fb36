"""Hosts that no rule decides about: connections wait while somebody is asked.

`questions` decides and is pure: what is asked, and what an answer allows. `asker` puts the questions of one
command and lets its connections wait.

Imports: egress.
Open to other rooms: asker, questions.
"""
