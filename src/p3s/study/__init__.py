"""Grids of runs, as data: from one TOML file to many run folders, and to be interrupted freely."""
