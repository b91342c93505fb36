"""What is known of a worker and what follows from it: claims with their source, and from them the status,
what holds it up, the verdict at the end, and the reason in words. Everything here is pure.

Imports: decoding.
Open to other rooms: advice, digest, evidence, holdups, status, verdict.
"""
