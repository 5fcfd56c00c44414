"""An agent as it is declared, and what it is given to work with."""
