"""How an executor and its clients meet: requests to a registry, dialling a relay, and when to try again."""
