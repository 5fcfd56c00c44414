"""The web console at `/console`: a page to view sessions live and to decide pending items. It
uses the same `/v1` routes as every other client."""
