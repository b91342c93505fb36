"""What codex requests of an executor besides processes and files: discovery of plugins and skills, its
configuration.

Imports: decoding, errors, wire.
Open to other rooms: discovery, executorconfig.
"""
