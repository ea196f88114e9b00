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
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or _use_files(out))
        experiment = self._find_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "fgmix"))
        earlier = self.client.search_runs([experiment], f"tags.`{TAG}` = '{spec.name}'", max_results=1)
        run = earlier[0] if earlier else self._start(experiment, spec)
        self.id = run.info.run_id
        self.before = {
            (key, each.step) for key in run.data.metrics for each in self.client.get_metric_history(self.id, key)
        }

    def _find_experiment(self, name: str) -> str:
        experiment = self.client.get_experiment_by_name(name)
        return str(experiment.experiment_id if experiment else self.client.create_experiment(name))

    def _start(self, experiment: str, spec: ResolvedSpec) -> Run:
        run = self.client.create_run(experiment, tags={TAG: spec.name}, run_name=spec.name)
        fields = {name: getattr(spec, name) for name in PARAMETERS} | {"test_domains": "+".join(spec.test_domains)}
        parameters = [Param(_clean(name), str(value)) for name, value in {**fields, **spec.settings}.items()]
        self.client.log_batch(run.info.run_id, params=parameters)
        return run

    def has(self, tag: str, step: int) -> bool:
        return (_clean(tag), step) in self.before

    def write(self, step: int, points: dict[str, float]) -> None:
        now = int(1000 * time.time())
        self.client.log_batch(self.id, [Metric(_clean(tag), value, now, step) for tag, value in points.items()])

    def close(self) -> None:
        self.client.set_terminated(self.id)


def _use_files(out: Path) -> str:
    """Allow a file store, in which the processes of a sweep do not block each other; return its address."""
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 requires it for file stores
    return (out / "mlruns").absolute().as_uri()


def _clean(tag: str) -> str:
    """Replace the characters of a tag that MLflow rejects, such as the % in `-90%`."""
    return re.sub(r"[^\w./: -]", "_", tag)
