"""From data of one's own to a model in use: an honest estimate, a model folder, predictions, export."""

from fgmix.deploy.fitting import fit_model as fit_model
from fgmix.deploy.model import DeployedModel as DeployedModel
from fgmix.deploy.model import Predictions as Predictions
from fgmix.deploy.model import load_model as load_model

__all__ = ["DeployedModel", "Predictions", "fit_model", "load_model"]
