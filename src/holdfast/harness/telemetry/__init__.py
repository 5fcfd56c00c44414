"""Telemetry of runs: `logs` contains log records and their redaction, `sinks` the targets of
records, and `spans` OpenTelemetry traces."""
