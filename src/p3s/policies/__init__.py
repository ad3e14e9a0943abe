"""A trained policy: as a file, as a film, in other formats."""
