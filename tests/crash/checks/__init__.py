"""The checks, one module a subject. None of them knows pytest."""
