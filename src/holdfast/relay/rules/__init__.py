"""What a relay decides, as pure functions and tables: messages of the registry, who may ask for what, signed
addresses, rates, and which socket a frame goes to.

Imports: errors, wire.
Open to other rooms: access, messages, ratelimit, signedurl, switchboard.
"""
