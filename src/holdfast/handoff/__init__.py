"""How a worker without a database reports the result of its task."""
