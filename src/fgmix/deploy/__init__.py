"""From your own data to a deployed model: estimate for an unseen domain, model folder, predictions, export."""
