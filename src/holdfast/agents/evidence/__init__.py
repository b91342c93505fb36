"""Evidence about a worker and the conclusions from it: claims with their source, the status, what holds the
worker up, the verdict at the end, and the reason in words. Everything here is pure.

Imports: decoding.
Open to other rooms: advice, digest, evidence, holdups, status, verdict.
"""
