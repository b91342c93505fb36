"""What passes between a server and its launcher: orders, events, descriptors, the report of a start,
the ports that are let through, and the sockets by which hosts are reached by name.

Imports: sandbox.kernel, sandbox.plan.
Open to other rooms: loopback, names, orders.
"""
