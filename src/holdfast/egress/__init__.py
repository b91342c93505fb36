"""The network by name: which hosts a command may reach, and who makes its connections.

`hosts` and `addresses` decide and are pure, `upstream` reads what the host says of proxies; `dial` makes a
connection to a host that was allowed, and `splice` joins it to the command's. What stands between a confined
command and those is here too.

Imports: errors, local.
Open to other rooms: splice, upstream.
"""
