"""What a program is told about its runs: `logs` records and what they are masked by, `sinks` where
they go, `metrics` the sums of a run, `spans` for OpenTelemetry."""
