"""The redaction of bundles: two modes, and a manifest of what was replaced."""
