"""One run on several processes of a machine, one per GPU, started by `torchrun --nproc_per_node N -m fgmix train …`.

The first process leads: it prepares the data, holds the run's folder, evaluates and prints. The others follow: each
gets the state at the first step, then the number of every step, until the leader says that it has ended. All of them
prepare the whole batch, with the same augmentation, and train on equal shares of it. DistributedDataParallel averages
the gradients, so that weights stay equal, and the step is that of one process with the same batch up to rounding.
"""

from __future__ import annotations

import gc
import io
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from msgspec import structs
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fgmix.algorithms import Algorithm, Batches, get
from fgmix.data.loading import deliver, share_cores
from fgmix.errors import UserError, bad_value
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import ResolvedSpec, RunRecord, RunSpec
from fgmix.seeding import seed_hash
from fgmix.terminal import print_notes
from fgmix.training.devices import pick_device
from fgmix.training.loop import initialise, take_step, train_prepared
from fgmix.training.prepare import build_algorithm, build_source, prepare
from fgmix.training.resolve import list_notes
from fgmix.training.signals import SIGNALS
from fgmix.training.state import is_measured

END, READY = -1, 0  # what the leader says besides sizes and steps
PATIENCE = timedelta(days=1)  # how long followers wait for a step: evaluations may take hours


def find_role() -> Literal["alone", "leader", "follower"]:
    """Say what this process is: alone unless torchrun has started it with others."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:  # torchrun's
        return "alone"
    return "follower" if int(os.environ["RANK"]) else "leader"


def lead(spec: RunSpec, out: Path, *, device: str = "auto", progress: bool = True, **how: Any) -> RunRecord:
    """Train a run as the first of several processes; the arguments are those of `train`."""
    with _join(device) as team:
        run = prepare(spec, device=str(team.device), progress=progress)
        check_shares(run.spec, team.size)
        if progress:
            print_notes(*list_notes(spec, run.spec))
        team.tell(READY)
        return train_prepared(run, out, device=str(team.device), progress=progress, on_start=team.share, **how)


def follow(spec: RunSpec, *, device: str = "auto") -> None:
    """Train a run as one of the other processes; the leader writes what there is to write."""
    for number in (signal.SIGINT, *SIGNALS):  # the leader finishes its step, for which it needs this process
        signal.signal(number, signal.SIG_IGN)
    with _join(device) as team:
        if team.listen() == END:
            return
        run = prepare(spec, device=str(team.device), progress=False)
        cold = replace(run, spec=structs.replace(run.spec, warmup_head=0))  # the leader's classifier is warm
        algorithm = initialise(build_algorithm(run), cold, team.device, show=False)
        if (size := team.listen()) == END:
            return
        team.receive(algorithm, size)
        evaluated = PROTOCOLS[run.spec.protocol].evaluations(run.spec.eval_every, run.spec.steps)
        steps = range(algorithm.updates, run.spec.steps)
        layout = run.spec.channels_last
        batches = deliver(build_source(run).prepare, steps, device=team.device, channels_last=layout)
        while (step := team.listen()) != END:
            algorithm.measures = is_measured(step + 1, evaluated)
            take_step(algorithm, run.spec, step, next(batches))


def check_shares(spec: ResolvedSpec, size: int) -> None:
    """Raise an error for a run that processes cannot share, or not equally."""
    if not get(spec.algorithm).per_sample:
        raise UserError(
            f"Expected a method whose loss is a mean over samples, such as erm, for {size} processes. Found "
            f"{spec.algorithm}, which needs the whole batch at once. Train it in one process."
        )
    if spec.batch_size % size:
        raise bad_value("batch_size", f"a multiple of {size}, the number of processes", spec.batch_size)
    if os.environ["LOCAL_WORLD_SIZE"] != os.environ["WORLD_SIZE"]:
        raise UserError("Expected processes of one machine. Found several machines. Use `torchrun --nnodes 1`.")


@contextmanager
def _join(device: str) -> Iterator[_Team]:
    """Join the processes that torchrun has started; on leaving, the leader tells the others to end."""
    local, size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    own = pick_device(f"cuda:{local}" if device in ("auto", "cuda") and torch.cuda.is_available() else device)
    share_cores(size)
    dist.init_process_group("nccl" if own.type == "cuda" else "gloo", timeout=PATIENCE)
    team = _Team(dist.get_rank(), size, own, dist.new_group(backend="gloo", timeout=PATIENCE))
    try:
        yield team
    finally:
        if team.rank == 0:
            with suppress(RuntimeError):  # a follower is gone
                team.tell(END)
        team.leave()
        dist.destroy_process_group()


@dataclass
class _Team:
    """The processes that train one run."""

    rank: int  # of this one; 0 leads
    size: int
    device: torch.device
    control: Any  # group in which the leader speaks: on the host, so that no GPU waits
    shared: Algorithm | None = None  # whose steps are shared

    def leave(self) -> None:
        """Give up every reference to the groups: one whose threads run when Python exits would abort the process."""
        if self.shared is not None:
            del self.shared.objective, self.shared.step  # the class's own take their place
        self.shared = self.control = None
        gc.collect()

    def tell(self, number: int) -> None:
        """Send a number to the followers."""
        dist.broadcast(torch.tensor(number), 0, group=self.control)

    def listen(self) -> int:
        """Wait for a number from the leader."""
        number = torch.tensor(0)
        dist.broadcast(number, 0, group=self.control)
        return int(number)

    def share(self, algorithm: Algorithm) -> None:
        """Send the state of the leader's algorithm to the followers, and share its steps with them from now on."""
        if algorithm.batch_norm_trains:
            raise UserError("Expected frozen batch-norm layers for several processes. Found others. Add --freeze-bn.")
        torch.save(algorithm.state_dict(), packed := io.BytesIO())
        data = torch.frombuffer(packed.getbuffer(), dtype=torch.uint8)
        self.tell(len(data))
        dist.broadcast(data, 0, group=self.control)
        self._divide(algorithm)

    def receive(self, algorithm: Algorithm, size: int) -> None:
        """Load the state of the leader's algorithm, of `size` bytes, and share its steps from now on."""
        data = torch.empty(size, dtype=torch.uint8)
        dist.broadcast(data, 0, group=self.control)
        packed = io.BytesIO(data.numpy().tobytes())
        algorithm.load_state_dict(torch.load(packed, map_location=self.device, weights_only=True))
        self._divide(algorithm)

    def _divide(self, algorithm: Algorithm) -> None:
        """Let each process compute the objective and the gradients of its share, and average them over processes."""
        whole, config = algorithm.step, algorithm.config
        # The micro-batches of a step are shared, too: those of one process are as large as without the others.
        algorithm.config = replace(config, accumulate=-(-config.accumulate // self.size))
        # With several optimisers, weights may have no gradient for a while, such as the featurizer in a linear probe.
        several = len(algorithm.optimizers()) > 1
        averaged = DistributedDataParallel(_Objective(algorithm), find_unused_parameters=several)

        def compute_objective(batches: Batches) -> dict[str, Tensor]:
            # Dropout draws other masks in every process.
            torch.manual_seed(seed_hash(int(torch.randint(2**31, ())), self.rank))
            terms: dict[str, Tensor] = averaged(batches)
            return terms

        def step(batches: Batches) -> dict[str, Tensor]:
            if self.rank == 0:
                self.tell(algorithm.updates)
            metrics = whole([(x.chunk(self.size)[self.rank], y.chunk(self.size)[self.rank]) for x, y in batches])
            means = torch.stack([value.float() for value in metrics.values()]) / self.size
            dist.all_reduce(means)
            return dict(zip(metrics, means.unbind()))

        algorithm.objective, algorithm.step = compute_objective, step  # type: ignore[method-assign]
        self.shared = algorithm


class _Objective(nn.Module):
    """The objective of an algorithm as a module of the weights that it trains, for DistributedDataParallel."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        groups = [group for optimizer in algorithm.optimizers().values() for group in optimizer.param_groups]
        trained = {id(p): p for group in groups for p in group["params"] if p.requires_grad}
        self.weights, self.objective = nn.ParameterList(trained.values()), algorithm.objective

    def forward(self, batches: Batches) -> dict[str, Tensor]:
        return self.objective(batches)
