"""One run, from spec to record. Nothing is imported here: records and specs are read without torch."""
