"""Running the server: port, model file, HTTP application, orderly end.

The order is what an operator would want: a wrong setting or a taken port is said before anything
is downloaded; the model's file is fetched in the foreground, with a bar and a clear error; then the
port answers, and the model is loaded behind it (`/ready` says 503 until that is done).

Invariant: this function returns normally after Ctrl-C or SIGTERM, when running answers were ended
or had their time to end.

Read next: `server/api/app.py`, the application and what it does at start and end.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
from types import FrameType

from server.catalogue import is_loopback, served_name
from server.fetch import resolve_model
from server.progress import terminal_progress
from server.settings import Settings

#: Seconds that running answers get to end after Ctrl-C or SIGTERM.
GRACE_SECONDS = 10

_log = logging.getLogger("gabarito")


class ServeError(Exception):
    """The server can't start, for a reason outside the settings (a taken port, say)."""


def run_server(settings: Settings) -> None:
    """Fetch the model if need be and serve until Ctrl-C or SIGTERM.

    Raises:
        CatalogueError, FetchError: the model can't be had.
        ServeError: the address can't be listened on, or the application didn't start.
    """
    signal.signal(signal.SIGTERM, _terminate)
    _set_up_logging(settings.server.log_level)
    name = served_name(settings)
    with _bind(settings.server.host, settings.server.port) as listener:
        with terminal_progress() as progress:
            path = resolve_model(settings, progress)
        _log.info("model %s: %s", name, path)
        _announce(name, settings.server.host, listener)
        _serve(settings, listener)


def _serve(settings: Settings, listener: socket.socket) -> None:
    # Imported here, so that commands which serve nothing start without these libraries.
    import uvicorn

    from server.api.app import create_app

    config = uvicorn.Config(
        create_app(settings),
        log_config=None,
        log_level=settings.server.log_level,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = uvicorn.Server(config)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # raised again by uvicorn after its orderly end
        return
    if not server.started:
        raise ServeError("the server didn't start; the log above says why")


def _bind(host: str, port: int) -> socket.socket:
    """Take the port. Connections are accepted only once the server listens on it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ServeError(f"can't listen on {host}: {error.strerror or error}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ServeError(f"can't listen on {host} port {port}: {error.strerror}") from None
    return listener


def _announce(name: str, host: str, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    _log.info("serving %s on http://%s:%d/v1 (docs: /docs)", name, shown, port)
    if not is_loopback(host):
        _log.warning("anyone who reaches port %d can use the server: it asks for no key", port)


def _set_up_logging(level: str) -> None:
    logging.addLevelName(5, "TRACE")
    logging.basicConfig(
        level=5 if level == "trace" else level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for chatty in ("httpx", "httpcore", "filelock"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    if level not in ("debug", "trace"):
        logging.getLogger("uvicorn.access").addFilter(_is_no_probe)


def _is_no_probe(record: logging.LogRecord) -> bool:
    """Whether a line of the access log is worth showing: probes come every few seconds.

    uvicorn's records hold (client, method, path, HTTP version, status).
    """
    if not isinstance(record.args, tuple) or len(record.args) != 5:
        return True
    return not (record.args[2] in ("/health", "/ready") and record.args[4] == 200)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM while uvicorn isn't handling it: leave through the `finally` blocks."""
    sys.exit(0)
