"""Keys that stay outside: a command has a placeholder, and requests to one host get the key on their way.

`placeholders`, `masking`, `injection`, `wellknown` and `providers` decide and are pure: the placeholder of a
key, the masking of a response, the rewriting of a request to the host, and the variables that hold keys, by
their names or as a client describes them. `sources` reads keys, `authority` creates the certificates of one
run, `tls` terminates TLS on a socket, `inspector` serves one connection to such a host.

Imports: egress, egress.bounds, errors, sandbox.policy.
Open to other rooms: authority, inspector, masking, placeholders, providers, sources, wellknown.
"""
