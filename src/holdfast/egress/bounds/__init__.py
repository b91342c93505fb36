"""Limits on the traffic between a command and hosts that it may reach: how much, how fast, which requests.

`allowance` counts bytes and connections, `requested` judges methods and paths: both are pure.

Imports: egress, errors, sandbox.policy.
Open to other rooms: allowance, requested.
"""
