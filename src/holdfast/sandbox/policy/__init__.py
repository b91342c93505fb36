"""Policies: rules about paths, patterns, network, unix sockets, presets and TOML profiles. Pure.

Imports: errors, sandbox.
Open to other rooms: amounts, credentials, globs, hostwish, narrowing, paths, policy, profile,
secretwish, sockets.
"""
