"""Studies: one TOML file defines a grid of runs, which can be interrupted at any time."""
