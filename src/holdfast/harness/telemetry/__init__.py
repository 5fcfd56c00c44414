"""Telemetry of runs: `logs` contains structured logging and redaction, `sinks` where log records
are written, and `spans` OpenTelemetry traces."""
