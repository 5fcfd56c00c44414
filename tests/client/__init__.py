"""The client against real servers: verbs, values and errors as in the library, over wires that
break."""
