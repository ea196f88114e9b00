"""The report as one self-contained HTML file: no network, no server, and no torch to make it."""
