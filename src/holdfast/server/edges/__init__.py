"""Where connections come in: addresses, authentication, WebSocket, HTTP head, lines on a unix socket or
pipes.

Imports: decoding, errors, local, log, rendezvous, sandbox.plan, server, server.processes, server.remote,
wire.
Open to other rooms: address, auth, binding, early, httphead, listen, plainfiles, remoteedge,
websocket.
"""
