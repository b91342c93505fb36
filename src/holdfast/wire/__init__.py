"""Bytes and typed messages: the JSON-RPC envelope, the table of methods, their structs, framing. Pure."""
