"""Workers on other machines: sending a workspace (`sending`), operations on the other machine (`there`), a
start with that machine's programs (`starting`), carrying a worker's reports and their answers (`courier`),
and the returned result, which is inspected and never obeyed (`returned`). `looking` collects the `facts`
about a machine.

Imports: agents.catalog, agents.changes, agents.worker, client, client.copying, decoding, errors, local,
sandbox, sandbox.policy.
Open to other rooms: courier, facts, looking, returned, sending, starting, there.
"""
