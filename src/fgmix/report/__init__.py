"""The report as one HTML file that needs nothing else: no network, no server, no torch to make it."""
