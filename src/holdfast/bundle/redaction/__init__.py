"""Redacts bundles in two modes (`sanitized` and `replay_only`), and lists the replacements in a
manifest.
"""
