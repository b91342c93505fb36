"""What passes between a server and its launcher: orders, events, descriptors, the report of a start,
and the ports that are let through.

Imports: sandbox.kernel, sandbox.plan.
Open to other rooms: loopback, orders, report.
"""
