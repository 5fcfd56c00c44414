"""What leaves a bundle out: one funnel, two modes, and a manifest that says what was replaced."""
