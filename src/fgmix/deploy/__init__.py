"""From data of one's own to a model in use: an honest estimate, a model folder, predictions, export."""
