"""Several processes serve one session, and people answer from outside."""
