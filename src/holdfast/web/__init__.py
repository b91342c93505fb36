"""The board in a browser: a server on loopback, and the page it serves."""
