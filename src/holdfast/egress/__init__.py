"""Network access by name: which hosts a command may reach, and the connections to them.

`hosts` and `addresses` decide and are pure, `upstream` reads the host's proxy settings; `dial` connects to a
host that was allowed, and `splice` joins that connection to the command's.

Without the program's cooperation: `names`, `clienthello`, `requests`, `namecheck` and `traffic` decide about
names and about the data sent to hosts, all pure; `inside` creates sockets in a command's network, `broker`
serves one command and `joint` is one of its connections; connections to hosts that no rule decides about wait
in `asking`. Through a proxy that the wire protocol requests: a `gate` judges (`verdicts`, pure), asks and
reports; `proxy` (HTTP) and `socks` speak with programs, which find them by `variables`. In both cases
`exchange` parses each request and serialises it anew; `keys` handles hosts that get a key on the way.

Imports: egress.asking, egress.bounds, egress.keys, errors, local, sandbox.kernel, sandbox.policy.
Open to other rooms: broker, dial, exchange, gate, hosts, inside, namecheck, proxy, socks, splice, traffic,
upstream, variables, verdicts.
"""
