"""From records to tables: selection, statistics, formats. No module here imports torch."""
