r"""Serves the handbook that ``make docs`` builds; if it isn't built, a page that says how to build it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import final

from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from zetadp.app.web.rendering import HEADERS, page

PATH = "/handbook"
BUILT = Path(__file__).resolve().parents[2] / "build" / "docs"
"""Where ``make docs`` puts it."""


@final
class Handbook(StaticFiles):
    """Its files, under the policy of all pages: the build leaves no inline script or style in them (``handbook/hooks.py``)."""

    def __init__(self, folder: Path | None) -> None:
        # It may be built while the service runs, so whether it is there is looked at with every request.
        super().__init__(directory=folder or BUILT, html=True, check_dir=False)

    async def check_config(self) -> None:
        """A missing folder is not a configuration error."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        assert self.directory is not None
        if not Path(self.directory, "index.html").is_file():
            return page("unbuilt.html", "Not built", current=PATH, status=404)
        try:
            answer = await super().get_response(path, scope)
        except HTTPException as refused:
            if refused.status_code != 404:
                raise
            return page("missing.html", "Not found", current=f"{PATH}/", status=404, what="page", name=os.path.basename(path))
        answer.headers.update(HEADERS)
        return answer
