"""Sweeps of many runs: search spaces, presets, plans, execution by any launcher, status."""
