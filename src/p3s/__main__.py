"""`python -m p3s` is `p3s`."""

from p3s.cli import main

main()
