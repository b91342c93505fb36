"""Keys that stay outside: a command has a placeholder, and requests to one host get the key on their way.

`placeholders`, `masking`, `injection`, `wellknown` and `providers` decide and are pure: what stands for a
key, what of an answer is covered, what a request to the host becomes, which variables hold keys, by their
names or as a client describes them. `sources` says where keys are taken from, `authority` makes the
certificates of one run, `tls` ends TLS on a socket, `inspector` serves one connection to such a host.

Imports: egress, egress.bounds, errors, sandbox.policy.
Open to other rooms: authority, inspector, masking, placeholders, providers, sources, wellknown.
"""
