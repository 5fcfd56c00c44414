"""Telemetry of runs: `logs` has log records and their redaction, `sinks` where records go, `spans`
OpenTelemetry traces."""
