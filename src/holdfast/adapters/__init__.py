"""Session interfaces of other frameworks, implemented on any Holdfast store. Each needs its own
extra.
"""
