"""Registry and rendezvous: executors that cannot be dialled register here, harnesses find them by their id,
and the relay passes frames between them that it cannot read. `rules` decides, `store` keeps the state, `node`
listens.
"""
