"""`python -m p3s.workers`: a process that holds an object of a run."""

from p3s.workers.remote import serve

serve()
