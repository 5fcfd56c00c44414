"""The web console at `/console`: a page that shows sessions live and decides what is pending. It
uses the same `/v1` routes as every other client."""
