"""fgmix export: write a model as one file for other software."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="folder that `fgmix fit` or `fgmix soup` wrote")],
    format: Annotated[str, typer.Option(help="onnx, or pt2 (torch.export)")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the file; by default model.<format> in the model's folder")
    ] = None,
) -> None:
    """Export a model to one file, and check its predictions.

    Example: fgmix export model
    """
    from fgmix.deploy.export import export_model
    from fgmix.deploy.model import load_model

    where = out or model / f"model.{format}"
    path = export_model(load_model(model), where, format, progress=True)  # type: ignore[arg-type]
    print(f"Written and checked: {path} ({path.stat().st_size / 1e6:.1f} MB)")
