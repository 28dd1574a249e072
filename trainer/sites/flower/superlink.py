r"""Flower's server, as its own program starts it, without what each request would pay for nothing.

    python superlink.py --host HOST --port PORT ...

Of its eight layers around each request five are about Flower's control API, or write an event log that is off. On other paths they only
pass the request on, but each costs more than the request's own work: they are left out there, and so is the log of every request. Around
them is a layer of ours (``bundling.py``), by which a message takes one request. Whoever may ask, and how they show it, is Flower's own as
before: its authentication of nodes and of the relay.
"""

from __future__ import annotations

import sys

import uvicorn
from bundling import Bundling
from flwr.superlink import extensions, main
from flwr.superlink.cli import flower_superlink
from flwr.superlink.routers.control import middlewares as control
from flwr.superlink.routers.fleet import middlewares as fleet
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

CONTROL = "/v1/control/"
END_SECONDS = 1
"""For requests that wait for a message when it is asked to end."""


def _only_control(layer: type[BaseHTTPMiddleware]) -> type[BaseHTTPMiddleware]:
    """The layer on paths of the control API, and nothing on others."""

    class OnlyControl(layer):
        async def __call__(self, scope, receive, send) -> None:
            inner = super().__call__ if scope["type"] != "http" or scope["path"].startswith(CONTROL) else self.app
            await inner(scope, receive, send)

    return OnlyControl


if __name__ == "__main__":
    for layer in (
        control.ControlSensitiveResponseMiddleware,
        control.ControlAuthenticationMiddleware,
        control.ControlLicenseMiddleware,
        control.ControlEventLogMiddleware,
    ):
        setattr(main, layer.__name__, _only_control(layer))
    # It writes an event log, for which no plug-in is loaded here.
    main.FleetEventLogMiddleware = _only_control(fleet.FleetEventLogMiddleware)
    extensions.get_middleware = lambda: (Middleware(Bundling),)
    run, own = uvicorn.run, {"access_log": False, "timeout_graceful_shutdown": END_SECONDS}
    uvicorn.run = lambda *arguments, **options: run(*arguments, **options | own)
    sys.exit(flower_superlink())
