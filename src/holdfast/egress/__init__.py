"""The network by name: which hosts a command may reach, and who makes its connections.

`hosts` and `addresses` decide and are pure, `upstream` reads what the host says of proxies; `dial` makes a
connection to a host that was allowed, and `splice` joins it to the command's. What stands between a confined
command and those is here too: `names`, `clienthello`, `requests`, `namecheck` and `traffic` decide about
names and what is said to hosts, all pure; `inside` makes sockets of a command's network, `broker` serves one
command.

Imports: errors, local, sandbox.kernel.
Open to other rooms: broker, dial, hosts, inside, splice, upstream.
"""
