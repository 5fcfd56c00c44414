"""HTTP: middleware, errors in one shape, validation messages, headers, the protocol below it."""
