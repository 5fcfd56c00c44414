"""What a run does: decide the next step, perform it, append the outcome."""
