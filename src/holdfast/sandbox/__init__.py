"""Who enforces what: a policy becomes a plan, a backend carries it out, and what it enforced is said."""
