"""The messages between a server and its launcher: orders, events, descriptors, the report of a start, the
ports that are let through, and the sockets that serve hosts by name.

Imports: sandbox.kernel, sandbox.plan.
Open to other rooms: loopback, names, orders.
"""
