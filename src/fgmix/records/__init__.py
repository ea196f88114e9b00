"""The record of a run: its schema, its files, and facts that need no torch. Imports only the leaves."""
