"""Objects that live in other processes."""
