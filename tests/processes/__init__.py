"""Several processes on one store: opening, crowding, racing, freezing, handing over, following.

Each function of `checks` takes the kind of store, an empty folder and its counts, and returns an
`Outcome`: the tests here call it with small counts, a soak with heavy ones. What happens in
another process is a method of `worker.Hand`.
"""
