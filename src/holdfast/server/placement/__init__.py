"""Where sessions are: which store, several stores, stores that are unavailable, sessions in use."""
