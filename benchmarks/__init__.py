"""Benchmarks of speed, as ratios of medians measured in one process: absolute times mean little on a shared machine."""
