"""The run loop: decide the next step, perform it, append the outcome."""
