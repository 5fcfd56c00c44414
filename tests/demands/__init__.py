"""What users ask for of a durable session where no test of one part alone shows it."""
