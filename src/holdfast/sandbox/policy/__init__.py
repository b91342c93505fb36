"""What is wished: rules about paths, patterns, network, presets and TOML profiles. Pure.

Imports: errors, sandbox.
Open to other rooms: globs, paths, policy, profile.
"""
