"""Executors that dial us, without a relay between (the direct transport): `admission` decides which ones are
admitted and is pure, `acceptedlink` is the connection that an executor has opened, `host` listens and
provides an environment for each.
"""
