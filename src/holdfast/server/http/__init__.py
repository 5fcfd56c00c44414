"""HTTP layer: middleware, error responses, validation messages, headers and low-level protocol
handling."""
