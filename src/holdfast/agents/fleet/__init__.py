"""Workers on other machines: a workspace carried over (`sending`), what is done over there (`there`), a start
with what that machine has (`starting`), and what came back, which is looked at and never obeyed (`returned`).

Imports: agents.catalog, agents.changes, agents.worker, client, client.copying, errors, local, sandbox,
sandbox.policy.
Open to other rooms: returned, sending, starting, there.
"""
