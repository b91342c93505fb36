"""Registry and rendezvous: executors that nobody can dial register here, harnesses find them by their id, and
frames pass between them that the relay cannot read. `rules` decide, `store` remembers, `service` listens.
"""
