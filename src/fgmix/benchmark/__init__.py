"""The protocol around the runs: what to search, which run to report, how sure one can be. Records in, tables out.

Nothing here imports torch when it is imported: a laptop can rebuild every table from the records.
"""
