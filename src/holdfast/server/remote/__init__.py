"""An executor that cannot be dialled: it registers itself, dials a relay, and serves the streams that come in
there, each of which is a connection like any other; or it dials one host (`direct`), with signed requests.

Imports: decoding, errors, local, log, rendezvous, server, wire.
Open to other rooms: agentidentity, awskeys, credential, direct, executing, forwarding, login, relayedge.
"""
