"""What sessions, users and tenants use is counted once, and budgets stop their runs."""
