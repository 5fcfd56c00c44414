"""The tests that the SDKs publish, run on our adapters."""
