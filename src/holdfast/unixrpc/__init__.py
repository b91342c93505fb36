"""JSON-RPC between processes of one user on one machine: a table of typed methods on a unix socket.

`calls.py` defines methods for both sides, and is pure; `server.py` listens, `client.py` calls. Messages are
those of `wire.rpc`, framed by `wire.lines`; this room may import `wire` and what is below it, and knows no
method.
"""
