"""What codex asks of an executor besides processes and files: discovery of plugins and skills, its
configuration.

Imports: errors, wire.
Open to other rooms: discovery, executorconfig.
"""
