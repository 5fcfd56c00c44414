"""Telemetry of runs: `logs` has log records and their redaction, `sinks` the targets of records,
`spans` OpenTelemetry traces."""
