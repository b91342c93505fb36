"""Workers on other machines: a workspace carried over (`sending`), what is done over there (`there`), a start
with what that machine has (`starting`), what a worker says about its task (`courier`), and what came back,
which is looked at and never obeyed (`returned`). What is known of a machine (`facts`) is seen by `looking`.

Imports: agents.catalog, agents.changes, agents.worker, client, client.copying, decoding, errors, local,
sandbox, sandbox.policy.
Open to other rooms: courier, facts, looking, returned, sending, starting, there.
"""
