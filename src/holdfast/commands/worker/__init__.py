"""`holdfast worker`: the commands about running agent CLIs, and a live table of them.

Imports: agents, agents.catalog, agents.supervisor, agents.worker, commands, errors, exec, local, log.
Open to other rooms: nothing of ours.
"""
