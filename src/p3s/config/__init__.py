"""What a run is: its fields, the presets that fill them, and its file."""
