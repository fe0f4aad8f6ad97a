"""Diagnostics: token tables, and pure functions of them to Findings. README.md says what every number is."""
