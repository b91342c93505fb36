"""`holdfast worker`: the commands about agent CLIs that run, and the live table of them.

Imports: agents, agents.catalog, agents.supervisor, agents.worker, commands, errors, exec, local, log.
Open to other rooms: nothing of ours.
"""
