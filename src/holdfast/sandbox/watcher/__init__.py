"""The processes beside a command: one hears of its calls, carries out those on sockets (`broker`), and sees
which others are refused, and what it can foresee of them (`watcher`); one covers again what somebody outside
replaced (`maskguard`).

Imports: sandbox.kernel, sandbox.plan, sandbox.protocol.
Open to other rooms: broker, foresight, listener, maskguard, notifyfilter, watcher.
"""
