"""`bench`: what the project's own parts cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pareto import RESULTS

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def _bench() -> None:
    """Benchmarks of the harness itself, on this machine."""


@app.command()
def transport(
    places: Annotated[
        str, typer.Option(help="Where: loopback, veth, netem (the shaped links), with commas.")
    ] = "loopback,veth,netem",
    netem: Annotated[
        str, typer.Option(help="The shaped links: profiles, with commas.")
    ] = "10ms-100mbit,wifi",
    ways: Annotated[
        str, typer.Option(help="floor, tcp, rpc, their variants (tcp:4, rpc:basic), naive, asyncio.")
    ] = "floor,tcp,rpc,naive",
    sizes: Annotated[str, typer.Option(help="Payloads, with commas.")] = "4kB,64kB,200kB,3MB,32MB",
    rounds: Annotated[
        int | None, typer.Option(help="Samples of each way, taken in turn.  [15; 3 with --quick]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order of measurements.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few and short samples, for a first look.")] = False,
    out: Annotated[Path, typer.Option(help="Where the JSON file goes.", show_default="results")] = RESULTS,
) -> None:
    """Compare each way of moving tensors with a plain socket: round trips, streams, processor time."""
    from pareto.bench.request import request

    texts = {"places": places, "netem": netem, "ways": ways, "sizes": sizes}
    wanted = request(**texts, rounds=rounds, seed=seed, quick=quick)
    from pareto.bench import run
    from pareto.console import console

    typer.echo(run.run(console(), wanted, out))
