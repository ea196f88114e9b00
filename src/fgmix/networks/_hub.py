"""Hugging Face's hub of timm's weights: use cached files, and report within seconds if the hub cannot be reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fgmix.errors import MachineError

TIMEOUT = 5  # seconds; the hub's own library retries for a minute


def cached_weights(cfg: Any) -> Path | None:
    """Return the weights file in Hugging Face's cache; None if it was not downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    if not cfg.hf_hub_id:
        return None
    repository, _, revision = cfg.hf_hub_id.partition("@")
    for name in [cfg.hf_hub_filename] if cfg.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]:
        file = try_to_load_from_cache(repository, name, revision=revision or None)
        if isinstance(file, str):
            return Path(file)
    return None


def require_answer(name: str, cfg: Any) -> None:
    """Raise an error if the address of the weights does not answer within `TIMEOUT`."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    address = f"{constants.ENDPOINT}/{cfg.hf_hub_id}" if cfg.hf_hub_id else cfg.url
    try:
        get_session().head(address, timeout=TIMEOUT)
    except Exception as error:
        raise MachineError(
            f"Expected to download the weights of {name} from {address}. It cannot be reached "
            f"({type(error).__name__}). Connect, or pass a file with --weights PATH, or copy Hugging Face's cache from "
            "a machine that has the weights and set HF_HUB_OFFLINE=1."
        ) from error
