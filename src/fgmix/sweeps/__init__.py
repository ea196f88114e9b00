"""Many runs: search spaces, presets, plans, execution on any launcher, status."""
