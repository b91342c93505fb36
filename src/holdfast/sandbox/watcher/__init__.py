"""The process beside a command that hears of its calls: it carries out those on sockets (`broker`), and sees
which others are refused, and what it can foresee of them (`watcher`).

Imports: sandbox.kernel, sandbox.plan, sandbox.protocol.
Open to other rooms: broker, foresight, listener, notifyfilter, watcher.
"""
