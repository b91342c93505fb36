"""The seam to SQL: named queries, numbered migrations, and one module each for SQLite and PostgreSQL.

Imports: board.rules, decoding, errors, sandbox.kernel.
Open to other rooms: database, opening, sqlite.
"""
