"""How a worker without a database says what became of its task."""
