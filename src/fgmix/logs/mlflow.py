"""MLflow: a run of fgmix is a run in the experiment `fgmix`.

The address of the tracking server (MLFLOW_TRACKING_URI) and the experiment (MLFLOW_EXPERIMENT_NAME) are MLflow's own
settings; without an address, MLflow's runs are in the folder `mlruns` in the folder of runs.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run

from fgmix.records.schema import ResolvedSpec

TAG = "fgmix.run"  # the name of the fgmix run, to find it again
PARAMETERS = ("algorithm", "dataset_name", "backbone", "steps", "batch_size", "seed", "trial_seed", "hparams_seed")


class MLflow:
    """The MLflow run of one fgmix run.

    Args:
        out: the folder of runs.
        spec: of the run; its main fields and settings become parameters.
    """

    def __init__(self, out: Path, spec: ResolvedSpec) -> None:
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or _files(out))
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "fgmix"))
        found = self.client.search_runs([experiment], f"tags.`{TAG}` = '{spec.name}'", max_results=1)
        self.id = (found[0] if found else self._start(experiment, spec)).info.run_id
        self.before = {
            (key, each.step) for key in self._keys() for each in self.client.get_metric_history(self.id, key)
        }

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self.client.create_experiment(name))

    def _start(self, experiment: str, spec: ResolvedSpec) -> Run:
        run = self.client.create_run(experiment, tags={TAG: spec.name}, run_name=spec.name)
        said = {name: getattr(spec, name) for name in PARAMETERS} | {"test_domains": "+".join(spec.test_domains)}
        parameters = [Param(_key(name), str(value)) for name, value in {**said, **spec.settings}.items()]
        self.client.log_batch(run.info.run_id, params=parameters)
        return run

    def _keys(self) -> list[str]:
        return list(self.client.get_run(self.id).data.metrics)

    def _history(self, key: str) -> list[Metric]:
        return list(self.client.get_metric_history(self.id, key))

    def has(self, tag: str, step: int) -> bool:
        return (_key(tag), step) in self.before

    def write(self, step: int, points: dict[str, float]) -> None:
        now = int(1000 * time.time())
        self.client.log_batch(self.id, [Metric(_key(tag), value, now, step) for tag, value in points.items()])

    def close(self) -> None:
        self.client.set_terminated(self.id)


def _files(out: Path) -> str:
    """Address of a file store, in which the processes of a sweep do not block each other."""
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 requires it for file stores
    return (out / "mlruns").absolute().as_uri()


def _key(tag: str) -> str:
    """A tag without the characters that MLflow rejects, such as the % in `-90%`."""
    return re.sub(r"[^\w./: -]", "_", tag)
