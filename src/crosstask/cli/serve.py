"""`crosstask serve`."""

import os
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import RunArgument, TrustOption, app
from crosstask.cli._device import DeviceOption
from crosstask.cli._signals import wait_for_signal
from crosstask.errors import CrossTaskError

if TYPE_CHECKING:
    from crosstask.serving.http_server import Server

LOCAL = ("127.0.0.1", "::1", "localhost")
MAX_PORT = 65_535


@app.command()
def serve(
    run: RunArgument,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="To listen on; 0.0.0.0 for every address of the machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=MAX_PORT, metavar="NUMBER", help="0 for any that is free.")] = 8000,
    max_batch: Annotated[
        int, typer.Option(min=1, max=4096, metavar="NUMBER", help="Inputs that the model takes at a time.")
    ] = 32,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, metavar="NUMBER", help="Of the model; all cores when left out.")
    ] = None,
    max_inputs: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Inputs of a request.")] = 256,
    max_characters: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Of one input.")] = 20_000,
    max_bytes: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Of a request's body.")] = 2**20,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="SECONDS", help="For the model to answer a request.")
    ] = 30.0,
    device: DeviceOption = None,
    trust_remote_code: TrustOption = False,
) -> None:
    """Answer over HTTP: POST /predict, GET /health, GET /openapi.json, and a page to try texts in at /.

    What is asked at the same time is computed together. Requests that are too large, too many, too slow or no JSON are
    refused with a status and a sentence. There is no password and no encryption: let others in through a server that
    has both. --log info, before the command, shows each request, but never what was asked.

    [dim]crosstask serve runs/stars[/dim]
    [dim]curl localhost:8000/predict -H 'Content-Type: application/json' -d '{"texts": \\["so good"]}'[/dim]
    """
    if threads is not None:
        # Before torch and the tokenizer begin.
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(threads)
    import torch

    from crosstask.cli._device import device_named
    from crosstask.runs.loading import load
    from crosstask.serving.http_server import Server
    from crosstask.serving.limits import Limits
    from crosstask.serving.service import Service

    if threads is not None:
        torch.set_num_threads(threads)
    chosen_device = device_named(device)
    predictor = load(run, trust_remote_code=trust_remote_code)
    if chosen_device is not None:
        predictor.model.to(chosen_device)
    limits = Limits(
        body_bytes=max_bytes, inputs=max_inputs, characters=max_characters, batch=max_batch, answer_seconds=seconds
    )
    service = Service(predictor, ", ".join(predictor.targets), limits)
    service.warm_up()
    try:
        server = Server(service, host, port)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CrossTaskError(
            f"Cannot listen on {host}, port {port}: {reason}. Choose another one with --host and --port."
        ) from error
    _run(server)


def _run(server: "Server") -> None:
    """Answer until a signal comes; then finish what is under way."""
    from crosstask.serving.http_server import serve_in_thread

    host = f"[{server.server_name}]" if ":" in server.server_name else server.server_name
    typer.echo(f"Serving {server.service.name} at http://{host}:{server.server_port} (Ctrl-C stops)", err=True)
    if server.server_name not in LOCAL:
        typer.echo("Note: other machines can reach it, without a password and without encryption.", err=True)
    serve_in_thread(server)
    number = wait_for_signal()
    server.stop()
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    typer.echo(f"Stopped by {name}; requests under way were finished.", err=True)
