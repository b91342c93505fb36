"""The board in a browser: a server on loopback, and the page it serves. `queries.py` asks the store for what
it shows.
"""
