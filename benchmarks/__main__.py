"""Measure speed, as ratios within one process: `python -m benchmarks NAME`, at the top of the repository."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Annotated

import typer

from fgmix.errors import UserError, bad_value
from fgmix.training.memory import keep_freed_memory

app = typer.Typer(
    help="Measure speed as ratios within one process.", no_args_is_help=True, pretty_exceptions_enable=False
)

Rounds = Annotated[int, typer.Option(help="number of rounds, at least 3", min=3, max=10_000)]
LARGEST = 4096  # side of an image


@app.command()
def step(
    algorithms: Annotated[
        list[str] | None, typer.Argument(help="methods, such as fgmix or 'fgmix + swa'; all by default")
    ] = None,
    backbone: Annotated[str, typer.Option(help="see `fgmix list backbones`")] = "resnet18",
    image_size: Annotated[int, typer.Option(help="side of the images", min=1, max=4096)] = 64,
    batch_size: Annotated[int, typer.Option(help="samples per domain", min=1, max=100_000)] = 32,
    domains: Annotated[int, typer.Option(help="number of source domains", min=1, max=1000)] = 3,
    classes: Annotated[int, typer.Option(help="number of classes", min=2, max=100_000)] = 7,
    rounds: Rounds = 15,
    cpu_time: Annotated[
        bool, typer.Option("--cpu-time", help="count CPU seconds, which other processes hardly change")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="folder of the times, for `fgmix report`; by default of the paper's methods")
    ] = None,
) -> None:
    """Measure the time of a training step relative to ERM's, beside the paper's number.

    Examples: python -m benchmarks step fgmix coral;
    python -m benchmarks step --backbone resnet50 --image-size 224 --rounds 20 --out cost && fgmix report cost
    """
    from benchmarks.steps import PAPER, SWA, measure_steps, write_costs
    from fgmix.records.rows import Row
    from fgmix.results.published import step_milliseconds

    bench = {
        "algorithms": algorithms or (PAPER if out else None),
        "backbone": backbone,
        "image_size": image_size,
        "batch_size": batch_size,
        "n_domains": domains,
        "n_classes": classes,
        "rounds": rounds,
        "cpu_time": cpu_time,
    }
    costs = []
    paper = step_milliseconds()
    print(f"{backbone} at {image_size} px, {domains} domains × {batch_size}, {classes} classes; ratio to ERM's step")
    print(f"{'method':20} {'ratio':>6} {'quartiles':>13} {'paper':>6} {'ms':>7}")
    for cost in measure_steps(**bench):
        costs.append(cost)
        published = paper.get(Row(cost.name.split(" ")[0], model="swa" if cost.name.endswith(SWA) else "raw"))
        theirs = f"{published / paper[Row('erm')]:6.2f}" if published else "     –"
        line = f"{cost.name:20} {cost.ratio:6.2f}  {cost.low:5.2f}–{cost.high:5.2f} {theirs} {cost.milliseconds:7.0f}"
        print(line, flush=True)
    if out:
        write_costs(costs, bench, out)


@app.command()
def growth(
    rows: Annotated[
        list[str] | None,
        typer.Argument(help="which of domains, classes, mixing, small, compiled, average, gradients; all by default"),
    ] = None,
    rounds: Rounds = 9,
) -> None:
    """Measure how the CPU time of a step grows with domains and classes, relative to ERM's (on images to DomainBed's).

    Example: python -m benchmarks growth domains
    """
    from benchmarks.growth import HEADS, ROWS, measure_compiled, measure_floor, measure_growth, measure_operations

    print(f"CPU milliseconds of a step, one thread; ratios are medians of {rounds} rounds")
    print(f"{'step':12} {'on':36} {'ms':>7}  {'over':9} {'ms':>7} {'ratio':>6} {'quartiles':>13}")
    for name in rows or ROWS:
        if name not in ROWS:
            raise bad_value("rows", f"among {', '.join(ROWS)}", name)
        for growth in measure_growth(ROWS[name], rounds=rounds):
            print(growth.as_line(), flush=True)
    if "mixing" in (rows or ROWS):
        for name, head in HEADS.items():
            floor = measure_floor(head)
            print(
                f"floor of a step that mixes, {name}: products {floor.products:.2f} ms, random directions "
                f"{floor.directions:.2f} ms, Adam {floor.adam:.2f} ms"
            )
        print("operations of a step alone, C = 7: fgmix {:.2f} ms, erm {:.2f} ms".format(*measure_operations()))
    if "compiled" in (rows or ROWS):
        for part, before, after, seconds in measure_compiled():
            print(f"{part}: {before:.3f} ms, compiled {after:.3f} ms, after {seconds:.0f} CPU seconds of compilation")


@app.command()
def policy(
    rounds: Rounds = 5,
    memory: Annotated[bool, typer.Option(help="also measure the peak memory, each in a process of its own")] = True,
) -> None:
    """Compare FGMix's policy step with a literal one that writes out gradients, pairs and directions.

    Example: python -m benchmarks policy
    """
    from benchmarks.policy import measure_policy

    print(f"{'d':>5} {'C':>4} {'k':>2} {'literal':>9} {'ours':>8} {'faster':>7} {'memory of the literal':>22}")
    for cost in measure_policy(rounds=rounds, memory=memory):
        size = cost.size
        share = f"{cost.fast_memory:.0f} of {cost.literal_memory:.0f} MB" if memory else "not measured"
        print(
            f"{size.code_size:5} {size.n_classes:4} {size.n_domains:2} {cost.literal:6.0f} ms {cost.fast:5.0f} ms "
            f"{cost.speed_up:6.1f}× {share:>22}"
        )


@app.command()
def data(
    folder: Annotated[
        Path | None, typer.Option(help="your own images, domain/class/image; synthetic photographs by default")
    ] = None,
    image_sizes: Annotated[str, typer.Option(help="sides of the images that a network sees")] = "64,224",
    images: Annotated[int, typer.Option(help="images per domain", min=1, max=100_000)] = 64,
    batch_size: Annotated[int, typer.Option(help="samples per domain", min=1, max=100_000)] = 32,
    rounds: Rounds = 9,
    threads: Annotated[int, typer.Option(help="torch threads, on both sides", min=1, max=1024)] = 1,
) -> None:
    """Measure images per second from the decoded cache, and as DomainBed loads them: every file decoded every time.

    Example: python -m benchmarks data --folder scans
    """
    from benchmarks.data import measure_data

    sizes = [_read_size(text) for text in image_sizes.split(",")]
    print(f"images per second, medians of {rounds} rounds; the same images and {threads} thread(s) on both sides")
    print("host: images per second of CPU time for the part that stays on the CPU where a GPU trains (crop and resize)")
    print(
        f"{'work':9} {'px':>4} {'DomainBed':>10} {'ours':>8} {'faster':>7} {'quartiles':>12} {'host':>8} "
        f"{'break-even':>18}"
    )
    for size in sizes:
        for speed in measure_data(
            folder, image_size=size, images=images, batch_size=batch_size, rounds=rounds, threads=threads
        ):
            low, high = speed.turns.quartiles
            print(
                f"{speed.work:9} {size:4} {speed.theirs:10.0f} {speed.ours:8.0f} {speed.turns.ratio:6.1f}× "
                f"{low:5.1f}–{high:5.1f}× {speed.host:8.0f} {speed.paid_after:12.1f} reads",
                flush=True,
            )


@app.command()
def cache(
    folder: Annotated[
        Path | None, typer.Option(help="your own images, domain/class/image, for the second part; by default synthetic")
    ] = None,
    rounds: Rounds = 9,
) -> None:
    """Measure how long large photos take to be decoded for the cache, and how fast JPEGs are read from it.

    Example: python -m benchmarks cache --folder scans
    """
    from benchmarks.images import PHOTOS, measure_filling, measure_jpegs

    print(f"CPU milliseconds of a JPEG photo, medians of {rounds} rounds")
    print(f"{'photo':>10} {'px':>4} {'whole':>6} {'fgmix':>6} {'faster':>7} {'quartiles':>10} {'grey levels':>12}")
    for found in measure_filling(rounds=rounds):
        ours, whole = (1000 * statistics.median(times) / PHOTOS for times in (found.turns.ours, found.turns.theirs))
        ratio, (low, high) = found.turns.ratio, found.turns.quartiles
        size = "×".join(map(str, found.size))
        print(
            f"{size:>10} {found.image_size:4} {whole:6.1f} {ours:6.1f} {ratio:6.1f}× {low:4.1f}–{high:4.1f}× "
            f"{found.difference:12.2f}",
            flush=True,
        )
    print(
        f"training at 224 px from JPEGs: {measure_jpegs(folder, rounds=rounds):.0f} images per CPU second on the host"
    )


@app.command()
def layout(
    backbones: Annotated[list[str], typer.Argument(help="see `fgmix list backbones`")],
    image_sizes: Annotated[str, typer.Option(help="sides of the images")] = "64,224",
    rounds: Rounds = 5,
) -> None:
    """Measure the CPU time of networks in channels-last layout, the default for images, against contiguous.

    Example: python -m benchmarks layout resnet18 tf_efficientnet_lite0
    """
    from benchmarks.networks import measure_layouts

    print(f"CPU milliseconds per image, one thread, medians of {rounds} rounds")
    print(
        f"{'network':22} {'px':>4} {'work':9} {'contiguous':>10} {'channels-last':>13} {'faster':>7} {'quartiles':>12}"
    )
    sizes = [_read_size(text) for text in image_sizes.split(",")]
    for found in measure_layouts(backbones, sizes, rounds=rounds):
        last, contiguous = (1000 * statistics.median(t) / found.images for t in (found.turns.ours, found.turns.theirs))
        low, high = found.turns.quartiles
        print(
            f"{found.backbone:22} {found.image_size:4} {found.work:9} {contiguous:10.2f} {last:13.2f} "
            f"{found.turns.ratio:6.2f}× {low:5.2f}–{high:4.2f}×",
            flush=True,
        )


@app.command()
def pieces(
    backbones: Annotated[list[str], typer.Argument(help="see `fgmix list backbones`")],
    image_sizes: Annotated[str, typer.Option(help="sides of the images")] = "64,224",
    rounds: Rounds = 3,
) -> None:
    """Measure the CPU time of an evaluation by the number of images that pass through the network at a time.

    Example: python -m benchmarks pieces resnet18 tf_efficientnet_lite0
    """
    from benchmarks.networks import PIECES, measure_pieces

    print(f"CPU milliseconds per image, one thread, medians of {rounds} rounds; images at a time:")
    print(f"{'network':22} {'px':>4} " + " ".join(f"{n:6}" for n in PIECES))
    sizes = [_read_size(text) for text in image_sizes.split(",")]
    for backbone, size, seconds in measure_pieces(backbones, sizes, rounds=rounds):
        print(f"{backbone:22} {size:4} " + " ".join(f"{1000 * seconds[n]:6.2f}" for n in PIECES), flush=True)


@app.command()
def checkpoint(
    backbone: Annotated[str, typer.Option(help="see `fgmix list backbones`")] = "resnet50", rounds: Rounds = 5
) -> None:
    """Measure CPU time and memory of a checkpoint beside plain `torch.save`.

    Example: python -m benchmarks checkpoint
    """
    from benchmarks.checkpoint import measure_checkpoint

    cost = measure_checkpoint(backbone, rounds=rounds)
    ours, plain = (statistics.median(times) for times in (cost.turns.ours, cost.turns.theirs))
    print(f"a checkpoint of {backbone}, {cost.size:.0f} MB: {ours:.2f} CPU-s, torch.save {plain:.2f} CPU-s")
    low, _, high = statistics.quantiles(cost.turns.ours, n=4)
    print(f"(medians of {rounds} rounds, quartiles {low:.2f}–{high:.2f})")
    print(f"memory added while it is written: {cost.added:.0f} MB")


@app.command("eval")
def evaluation(
    folder: Annotated[
        Path | None, typer.Option(help="your own images, domain/class/image; synthetic photographs by default")
    ] = None,
    image_sizes: Annotated[str, typer.Option(help="sides of the images that a network sees")] = "64,224",
    images: Annotated[int, typer.Option(help="images per domain", min=1, max=100_000)] = 128,
    backbone: Annotated[
        str | None, typer.Option(help="see `fgmix list backbones`; by default a trivial network")
    ] = None,
    models: Annotated[int, typer.Option(help="2, or 1 for a run without an average", min=1, max=2)] = 2,
    rounds: Rounds = 9,
) -> None:
    """Measure the CPU time of an evaluation of both models in one pass, in a pass for each, and as DomainBed does it.

    Example: python -m benchmarks eval --folder scans
    """
    from benchmarks.evaluation import measure_evaluation

    sizes = [_read_size(text) for text in image_sizes.split(",")]
    print(f"an evaluation of {models} model(s) in CPU time; ratios are medians of {rounds} rounds")
    print(f"{'px':>4} {'images/s':>9}  {'against':12} {'faster':>7} {'quartiles':>12}")
    for size in sizes:
        speed = measure_evaluation(
            folder, image_size=size, images=images, backbone=backbone, models=models, rounds=rounds
        )
        for name, turns in speed.against.items():
            low, high = turns.quartiles
            line = f"{size:4} {speed.ours:9.0f}  {name:12} {turns.ratio:6.1f}× {low:5.1f}–{high:5.1f}×"
            print(line, flush=True)


@app.command()
def sweep(
    dataset: Annotated[str, typer.Option(help="digits, a folder or an .npz file")] = "digits",
    algorithm: Annotated[str, typer.Option(help="see `fgmix list algorithms`")] = "erm",
    runs: Annotated[int, typer.Option(help="runs of a sweep", min=1, max=100_000)] = 16,
    steps: Annotated[int, typer.Option(help="steps of a run", min=1, max=100_000)] = 10,
    workers: Annotated[int, typer.Option(help="processes at a time, on both sides", min=1, max=1024)] = 2,
    rounds: Rounds = 3,
) -> None:
    """Measure runs per minute on warm workers, and as DomainBed runs them: a new process for every run.

    Example: python -m benchmarks sweep
    """
    from benchmarks.sweep import measure_sweep

    speed = measure_sweep(dataset, algorithm, runs=runs, steps=steps, workers=workers, rounds=rounds)
    low, high = speed.turns.quartiles
    print(
        f"{algorithm} on {dataset}, {speed.runs} runs of {steps} steps, {workers} at a time; medians of {rounds} rounds"
    )
    print(f"a process per run: {speed.theirs:6.1f} runs per minute")
    print(f"warm workers:      {speed.ours:6.1f} runs per minute, {speed.turns.ratio:.2f}× ({low:.2f}–{high:.2f}×)")
    print(f"a cold start:      {speed.cold_start:6.1f} s")


@app.command()
def run(
    steps: Annotated[int, typer.Option(help="steps of a run", min=30, max=100_000)] = 300,
    many: Annotated[int, typer.Option(help="short runs, of a third of the steps", min=4, max=10_000)] = 40,
    rounds: Rounds = 5,
) -> None:
    """Compare runs on features with a bare loop of torch, alone, many in one process, and as a sweep.

    Example: python -m benchmarks run
    """
    from benchmarks.runs import measure_runs

    print(f"CPU seconds, medians of {rounds} rounds (3 for many runs); ratio to a bare loop of ERM with the same steps")
    print(f"{'run':36} {'fgmix':>7} {'bare':>7} {'ratio':>6} {'quartiles':>13}")
    for speed in measure_runs(steps=steps, many=many, rounds=rounds):
        ours, theirs = (statistics.median(times) for times in (speed.turns.ours, speed.turns.theirs))
        low, high = sorted(1 / quartile for quartile in speed.turns.quartiles)
        print(
            f"{speed.what:36} {ours:7.2f} {theirs:7.2f} {1 / speed.turns.ratio:6.2f}  {low:5.2f}–{high:5.2f}",
            flush=True,
        )


@app.command()
def stacked(
    features: Annotated[int, typer.Option(help="number of features", min=1, max=100_000)] = 128,
    runs: Annotated[int, typer.Option(help="runs that are stacked", min=1, max=10_000)] = 16,
    steps: Annotated[int, typer.Option(help="steps of a run", min=30, max=100_000)] = 100,
    rounds: Rounds = 3,
) -> None:
    """Measure how much faster runs on features could be as stacked matrices, which fgmix does not do.

    Example: python -m benchmarks stacked --features 2048
    """
    from benchmarks.stacked import measure_stacked

    turns = measure_stacked(features=features, runs=runs, steps=steps, rounds=rounds)
    ours, theirs = (1000 * statistics.median(times) / runs / steps for times in (turns.ours, turns.theirs))
    low, high = turns.quartiles
    print(f"CPU milliseconds per step of a run, {features} features, {runs} runs; medians of {rounds} rounds")
    print(f"one by one {theirs:.2f}, stacked {ours:.2f}: {turns.ratio:.2f}× as fast ({low:.2f}–{high:.2f}×)")


@app.command()
def start(rounds: Rounds = 5) -> None:
    """Measure the CPU time of commands that do little, each in a process of its own.

    Example: python -m benchmarks start
    """
    from benchmarks.start import measure_start

    print(f"CPU seconds of a process with compiled bytecode, medians of {rounds} rounds")
    print(f"{'command':24} {'s':>6} {'quartiles':>12}")
    for what, seconds in measure_start(rounds=rounds):
        low, middle, high = statistics.quantiles(seconds, n=4)
        print(f"{what:24} {middle:6.2f}  {low:5.2f}–{high:5.2f}")


@app.command()
def domainbed(
    steps: Annotated[int, typer.Option(help="steps of the run", min=30, max=100_000)] = 300,
    every: Annotated[int, typer.Option(help="steps between evaluations", min=1, max=100_000)] = 10,
    rounds: Rounds = 3,
) -> None:
    """Compare a run of the small CNN with a twin of DomainBed's training script that evaluates as often.

    Example: python -m benchmarks domainbed
    """
    from benchmarks.domainbed_run import measure_run

    turns = measure_run(steps=steps, every=every, rounds=rounds)
    ours, theirs = (statistics.median(times) for times in (turns.ours, turns.theirs))
    low, high = turns.quartiles
    print(f"CPU seconds of {steps} steps with an evaluation every {every}, medians of {rounds} rounds, one thread")
    print(f"DomainBed: {theirs:6.1f}")
    print(f"fgmix:     {ours:6.1f}, {turns.ratio:.2f}× as fast ({low:.2f}–{high:.2f}×)")


@app.command()
def plan() -> None:
    """Compare the times that `fgmix plan` estimates with those that the runs take.

    Example: python -m benchmarks plan
    """
    from benchmarks.runs import measure_plan

    print(f"{'algorithm':10} {'dataset':10} {'planned':>8} {'taken':>8} {'ratio':>6}")
    for each in measure_plan((("erm", "digits", 40), ("fgmix", "digits", 40), ("coral", "digits", 40))):
        ratio = each.planned / each.taken
        print(f"{each.algorithm:10} {each.dataset:10} {each.planned:7.1f}s {each.taken:7.1f}s {ratio:6.2f}", flush=True)


@app.command()
def launches() -> None:
    """Count the kernel launches of a step, without a GPU, by dispatched operations.

    Example: python -m benchmarks launches
    """
    from benchmarks.operations import count_launches

    erm = count_launches("erm")
    print(f"{'method':10} {'launches':>8} {'more than ERM':>14}")
    for name in ("erm", "coral", "fish", "mldg", "fgmix"):
        found = count_launches(name)
        print(f"{name:10} {found:8} {found - erm:14}")


@app.command()
def memory(
    folder: Annotated[Path | None, typer.Option(help="images, domain/class/image; `digits` by default")] = None,
    image_size: Annotated[int, typer.Option(help="side of the images that a network sees", min=1, max=LARGEST)] = 64,
) -> None:
    """Measure the peak memory of processes that train ten steps on images.

    Example: python -m benchmarks memory --folder PACS
    """
    from benchmarks.memory import measure_memory

    print(f"{'process':18} {'peak, MB':>8}")
    for what, peak in measure_memory(folder, image_size=image_size):
        print(f"{what:18} {peak:8.0f}", flush=True)


def _read_size(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 5 or not 1 <= int(text) <= LARGEST:
        raise bad_value("image-sizes", f"integers from 1 to {LARGEST:,} such as 64,224", text)
    return int(text)


if __name__ == "__main__":
    keep_freed_memory()  # as the commands do, for both sides
    try:
        app(prog_name="python -m benchmarks")
    except UserError as error:
        sys.exit(str(error))
