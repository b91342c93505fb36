"""Enforcement of policies: a policy becomes a plan; a backend carries it out and reports what it enforces."""
