"""A log as one process sees it while it is open: what it shows, who hears of it, and what people
put into it."""
