"""The processes beside a command. The `broker` carries out its calls on sockets. The `watcher` is notified
of its calls, foresees which ones may be refused and sees which ones are. The `maskguard` covers a path again
after a process outside has replaced it.

Imports: sandbox.kernel, sandbox.plan, sandbox.protocol.
Open to other rooms: broker, foresight, listener, maskguard, notifyfilter, watcher.
"""
