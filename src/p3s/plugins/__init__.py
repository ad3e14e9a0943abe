"""What comes from outside the package: algorithms, schemes, networks, modules of users."""
