"""fgmix bench: speed, as ratios within one process."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Measure speed as ratios within one process.", no_args_is_help=True)


@app.command()
def step(
    algorithms: Annotated[
        list[str] | None, typer.Argument(help="methods, such as fgmix or 'fgmix + swa'; all by default")
    ] = None,
    backbone: Annotated[str, typer.Option(help="see `fgmix list backbones`")] = "resnet18",
    image_size: Annotated[int, typer.Option(help="side of the images")] = 64,
    batch_size: Annotated[int, typer.Option(help="instances per domain")] = 32,
    domains: Annotated[int, typer.Option(help="source domains")] = 3,
    classes: Annotated[int, typer.Option(help="classes")] = 7,
    rounds: Annotated[int, typer.Option(help="repeats")] = 15,
) -> None:
    """Time of a training step over ERM's, beside the paper's figure."""
    from fgmix.bench.step import SWA, measure_steps
    from fgmix.benchmark.published import step_milliseconds
    from fgmix.benchmark.selection import Method

    costs = measure_steps(
        algorithms,
        backbone=backbone,
        image_size=image_size,
        batch_size=batch_size,
        n_domains=domains,
        n_classes=classes,
        rounds=rounds,
    )
    paper = step_milliseconds()
    print(f"{backbone} at {image_size} px, {domains} domains × {batch_size}, {classes} classes; ratio to ERM's step")
    print(f"{'method':20} {'ratio':>6} {'quartiles':>13} {'paper':>6} {'ms':>7}")
    for cost in costs:
        published = paper.get(Method(cost.name.split(" ")[0], "swa" if cost.name.endswith(SWA) else "raw"))
        theirs = f"{published / paper[Method('erm')]:6.2f}" if published else "     –"
        line = f"{cost.name:20} {cost.ratio:6.2f}  {cost.low:5.2f}–{cost.high:5.2f} {theirs} {cost.milliseconds:7.0f}"
        print(line, flush=True)


@app.command()
def policy(
    rounds: Annotated[int, typer.Option(help="repeats")] = 5,
    memory: Annotated[bool, typer.Option(help="also measure the peak memory, each in a process of its own")] = True,
) -> None:
    """FGMix's policy step against the literal one: gradients, pairs and directions written out."""
    from fgmix.bench.policy import measure_policy

    print(f"{'d':>5} {'C':>4} {'k':>2} {'literal':>9} {'ours':>8} {'faster':>7} {'memory of the literal':>22}")
    for cost in measure_policy(rounds=rounds, memory=memory):
        size = cost.size
        share = f"{cost.fast_memory:.0f} of {cost.literal_memory:.0f} MB" if memory else "not measured"
        print(
            f"{size.code_size:5} {size.n_classes:4} {size.n_domains:2} {cost.literal:6.0f} ms {cost.fast:5.0f} ms "
            f"{cost.speed_up:6.1f}× {share:>22}"
        )
