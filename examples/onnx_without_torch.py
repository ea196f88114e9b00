"""Use an exported model of images with onnxruntime, numpy and Pillow alone, prepared as `fgmix predict` prepares them.

fgmix fit scans --out model && fgmix export model       # writes model/model.onnx, the only file that is needed
python onnx_without_torch.py model/model.onnx scan.png  # on a machine without torch and fgmix
"""

import json
import math
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def pixels(path, size, interpolation, window=""):
    """An image file as the model takes it: uint8 (S, S, 3)."""
    image = ImageOps.exif_transpose(Image.open(path))  # as the camera was held
    if image.mode.startswith("I"):  # grey of 16 bits, in the window of the training images
        if ":" not in window:
            raise ValueError("it has more than 8 bits, and the model has no window for them")
        low, high = map(float, window.split(":"))
        shown = np.rint(255 * np.clip((np.asarray(image) - low) / (high - low), 0, 1))
        image = Image.fromarray(shown.astype(np.uint8))
    if image.has_transparency_data:  # on white
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("RGB")
    scale = math.ceil(size / math.sqrt(0.7)) / min(image.size)  # as the cache of training keeps images
    if scale < 1:
        width, height = image.size
        image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.LANCZOS)
    return np.asarray(image.resize((size, size), Image.Resampling[interpolation.upper()]))


def predict(model, paths):
    """For each image file its class, the confidence, the novelty, and whether to trust the prediction."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map  # of JSON texts
    classes, interpolation = (json.loads(about[f"fgmix.{name}"]) for name in ("classes", "interpolation"))
    size, window = session.get_inputs()[0].shape[1], json.loads(about.get("fgmix.window", '""'))
    x = np.stack([pixels(path, size, interpolation, window) for path in paths])
    probabilities, novelty, trusted = session.run(None, {"x": x})
    labels = [classes[c] for c in probabilities.argmax(1)]
    return list(zip(labels, probabilities.max(1).tolist(), novelty.tolist(), trusted.tolist()))


if __name__ == "__main__":
    model, *paths = sys.argv[1:]
    for path, (label, confidence, _, trusted) in zip(paths, predict(model, paths)):
        print(f"{path}: {label}, confidence {confidence:.2f}, {'trusted' if trusted else 'not trusted'}")
