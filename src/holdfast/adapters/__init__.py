"""Other people's session contracts, kept on any Holdfast store. Each needs an extra of its own."""
