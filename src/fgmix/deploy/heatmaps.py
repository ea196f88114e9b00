"""Heat maps of predictions: where in an image the evidence for the predicted class lies (extra `heatmaps`).

    heat = relu(Σ_k w_k A_k),    w_k = mean over places of ∂ logit of the predicted class / ∂ A_k

with A the feature map at the end of the last stage of the network, enlarged to the image. Computed by Captum. The map
shows what the network used, not whether that is right.

Selvaraju et al., "Grad-CAM", 2017, https://arxiv.org/abs/1610.02391; Captum: https://captum.ai.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from msgspec import structs
from PIL import Image
from torch import Tensor, nn

from fgmix.data import DomainDataset, split_dataset
from fgmix.data.augment import ImageInputs
from fgmix.deploy.classifiers import Trees
from fgmix.deploy.labelled import predict_domain
from fgmix.deploy.model import Model
from fgmix.deploy.network import Network
from fgmix.errors import UserError, require_package
from fgmix.networks.stages import stages
from fgmix.records.files import make_folder
from fgmix.records.model import HeatMap

FOLDER = "heatmaps"  # in that of the model
COLOURS = "inferno"  # black, where there is no evidence, to yellow
OPACITY = 0.6  # of the heat over the image


def check_heat_maps(n: int, dataset: DomainDataset) -> None:
    """Raise an error, before anything is trained, if heat maps are wanted and cannot be drawn."""
    if n and dataset.kind != "images":
        raise UserError(f"Heat maps are of image files. Found {dataset.kind} in {dataset.name}. Drop --heatmaps.")
    if n:
        require_package("captum", "heatmaps")


def add_heat_maps(model: Model, dataset: DomainDataset, out: Path) -> Model:
    """Draw heat maps of holdout samples of the training domains, as many as the terms of a model ask for.

    A network without feature maps, such as a transformer, or without a gradient, such as trees, gets a note instead.
    """
    info = model.info
    if not info.terms.heatmaps:
        return model
    try:
        maps = _draw_all(model, dataset, make_folder(out / FOLDER))
    except UserError as error:
        return replace(model, info=structs.replace(info, notes=(*info.notes, f"No heat maps: {error}")))
    return replace(model, info=structs.replace(info, heatmaps=tuple(maps)))


def _draw_all(model: Model, dataset: DomainDataset, folder: Path) -> list[HeatMap]:
    """Draw the heat maps of evenly spaced holdout samples of each domain, and describe them."""
    n, spec, k = model.info.terms.heatmaps, model.info.spec, len(dataset.domains)
    splits = split_dataset(dataset, spec.holdout_fraction, spec.trial_seed)
    maps: list[HeatMap] = []
    for number, domain in enumerate(dataset.domains):
        inputs = domain.inputs.normalise(model.normalisation)
        if not isinstance(inputs, ImageInputs):
            raise AssertionError("`check_heat_maps` refuses other data")
        holdout = splits[domain.name].holdout
        share = n // k + (number < n % k)
        places = holdout[np.unique(np.linspace(0, len(holdout) - 1, share).astype(np.int64))] if share else holdout[:0]
        predicted = predict_domain(model, domain, places)
        labels = predicted.probabilities.argmax(axis=1)
        heats = compute_heat(model, inputs.clean(places), labels) if share else ()
        for place, heat, label, confidence in zip(places, heats, labels, predicted.confidence):
            name = f"{len(maps) + 1}.png"
            draw_beside(inputs.images[inputs.rows[place]], heat).save(folder / name)
            names = dataset.classes[domain.y[place]], model.info.classes[label]
            maps.append(HeatMap(f"{FOLDER}/{name}", domain.name, *names, round(float(confidence), 4)))
    return maps


def compute_heat(model: Model, x: Tensor, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Compute the heat (n, S, S) in [0, 1] of normalised images (n, 3, S, S) for a class of each."""
    from captum.attr import LayerAttribution, LayerGradCam

    network = model.network
    if not isinstance(network, Network):
        raise UserError("Heat maps are of one network. Found an ensemble.")
    if any(isinstance(module, Trees) for module in network.modules()):
        raise UserError("Heat maps need a gradient. Found trees, which have none.")
    device = network.temperature.device
    grad_cam = LayerGradCam(lambda images: network.logits_and_novelty(images)[0], _find_last_map(network))
    target = torch.from_numpy(labels).to(device)
    heat = grad_cam.attribute(x.to(device), target=target, relu_attributions=True)
    heat = LayerAttribution.interpolate(heat, tuple(x.shape[-2:]), "bilinear")[:, 0]
    values: npt.NDArray[np.float32] = (heat / heat.amax((1, 2), keepdim=True).clamp(min=1e-12)).detach().cpu().numpy()
    return values


def _find_last_map(network: Network) -> nn.Module:
    """Find the module that ends the last stage of the network of images."""
    featurizer = network.featurizer if isinstance(network.backbone, nn.Identity) else network.backbone
    last = stages(featurizer)[-1].end
    if last.channels_last or len(last.size) != 2:
        raise UserError("Heat maps need feature maps (n, c, h, w). Found another layout.")
    return featurizer.get_submodule(last.name)


def draw_beside(pixels: npt.NDArray[np.uint8], heat: npt.NDArray[np.float32]) -> Image.Image:
    """Draw an image (h, w, 3) and, on its right, the same image below its heat."""
    from matplotlib import colormaps

    image = Image.fromarray(pixels)
    shown = np.asarray(Image.fromarray(heat).resize(image.size, Image.Resampling.BILINEAR))
    colours = Image.fromarray((255 * colormaps[COLOURS](shown.clip(0, 1))[..., :3]).astype(np.uint8))
    pair = Image.new("RGB", (2 * image.width, image.height))
    pair.paste(image)
    pair.paste(Image.blend(image, colours, OPACITY), (image.width, 0))
    return pair
