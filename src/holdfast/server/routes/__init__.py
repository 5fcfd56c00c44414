"""The routes of the server, a matter each."""
