"""Redacts bundles: two modes, and a manifest of the replacements."""
