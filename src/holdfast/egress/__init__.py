"""The network by name: which hosts a command may reach, and who makes its connections.

`hosts` and `addresses` decide and are pure, `upstream` reads what the host says of proxies; `dial` makes a
connection to a host that was allowed, and `splice` joins it to the command's. A `gate` stands in between: it
judges (`verdicts`, pure), asks and tells. `proxy` (HTTP) and `socks` speak with programs, which find them by
`variables`.

Imports: errors, local.
Open to other rooms: dial, gate, hosts, proxy, socks, splice, upstream, variables, verdicts.
"""
