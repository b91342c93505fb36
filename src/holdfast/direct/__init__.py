"""Executors that dial us, without a relay between (the direct transport): `admission` decides who may and is
pure, `acceptedlink` is the connection that one has opened, `host` listens and gives an environment for each.
"""
