"""What a relay decides, as pure functions and tables: messages of the registry, who may ask for what, signed
addresses, rates, which socket a frame goes to, and what nodes say to each other.

Imports: decoding, errors, wire.
Open to other rooms: access, crossing, messages, ratelimit, signedurl, switchboard.
"""
