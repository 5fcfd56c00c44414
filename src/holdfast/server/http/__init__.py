"""HTTP: middleware, error responses, validation messages, headers, and the protocol below it."""
