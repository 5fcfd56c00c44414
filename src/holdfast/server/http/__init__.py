"""The HTTP layer: middleware, error responses, validation messages, headers and protocol
handling."""
