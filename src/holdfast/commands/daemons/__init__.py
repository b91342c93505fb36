"""Commands about long-running processes: `up`, `dispatch`, `web` and `serve` start them, `open`, `status` and
`down` find them.

Imports: agents.supervisor, agents.worker, board, board.rules, commands, dispatch, dispatch.rules, errors,
home, local, log, rendezvous, sandbox.plan, server, server.edges, server.remote, tracing, web.
Open to other rooms: keptserver, serving.
"""
