r"""Stands in for what a calculating process runs: a question that needs as much memory as it says."""

from __future__ import annotations

import socket

from fastapi import FastAPI, Request

from zetadp.app.computing.process import answer_all
from zetadp.app.kit import problems
from zetadp.app.kit.settings import Settings


def run(line: socket.socket, settings: Settings, niceness: int) -> None:
    """As ``zetadp.app.calculating`` has it."""
    app = FastAPI()
    problems.install(app)

    @app.post("/v1/profiles")
    async def profile(request: Request) -> int:
        return len(b"x" * (int(await request.body()) * 2**20))

    def shortcut(body: bytes) -> tuple[str, bytes]:
        return "profile", str(len(b"x" * (int(body) * 2**20))).encode()

    answer_all(line, settings, niceness, app, {("POST", "/v1/profiles"): shortcut})
