"""Fields of configurations: their types with bounds, and their names elsewhere."""
