"""The network by name: which hosts a command may reach, and who makes its connections.

`hosts` and `addresses` decide and are pure, `upstream` reads what the host says of proxies; `dial` makes a
connection to a host that was allowed, and `splice` joins it to the command's.

By name, without the program's help: `names`, `clienthello`, `requests`, `namecheck` and `traffic` decide
about names and what is said to hosts, all pure; `inside` makes sockets of a command's network, `broker`
serves one command and `joint` is one of its connections; those to hosts that no rule decides about wait in
`asking`. By a proxy that the wire asks for: a `gate` judges (`verdicts`, pure), asks and tells; `proxy`
(HTTP) and `socks` speak with programs, which find them by `variables`. Either way a request that is read is
written anew by `exchange`; hosts that get a key on the way are in `keys`.

Imports: egress.asking, egress.bounds, egress.keys, errors, local, sandbox.kernel, sandbox.policy.
Open to other rooms: broker, dial, exchange, gate, hosts, inside, namecheck, proxy, socks, splice, traffic,
upstream, variables, verdicts.
"""
