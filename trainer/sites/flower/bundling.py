r"""The server's side of ``bundles``: a layer around Flower's server that has four paths of its own.

What is asked is what Flower's own paths are asked, and Flower's own functions do it, after they have authenticated the node or the relay.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import bundles
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse, PushObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse, PushAppMessagesRequest
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.superlink.dependencies.linkstate import get_linkstate
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

LOOK_SECONDS = 1.0
"""How often it looks for what came by Flower's own paths, or for a node that is gone."""
UPLOAD_SECONDS = 60.0
"""A message may be announced before all of its parts have arrived."""


class Bundling:
    """Of an application; other paths than its own are passed on."""

    def __init__(self, app) -> None:
        self._app = app
        self._changed = asyncio.Event()
        # By a run: messages that no answer has come to. By a node: the one that it has or gets, until it has answered: a process that
        # takes the place of one that died, or whose connection broke, gets it again.
        self._unanswered: dict[int, set[str]] = {}
        self._given: dict[int, PullMessagesResponse] = {}
        self._paths = {
            bundles.NODE_PULL: self._node_pulls,
            bundles.NODE_PUSH: self._node_pushes,
            bundles.RELAY_PULL: self._relay_pulls,
            bundles.RELAY_PUSH: self._relay_pushes,
        }

    async def __call__(self, scope, receive, send) -> None:
        path = self._paths.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if path is None:
            await self._app(scope, receive, send)
            return

        async def answered(request: Request) -> Response:
            try:
                parts = bundles.split(BytesValue.FromString(await request.body()).value)
                found = await path(request, parts)
            except (DecodeError, ValueError, IndexError) as error:
                return Response(str(error), status_code=400)
            return Response(BytesValue(value=bundles.joined(found)).SerializeToString(), media_type="application/protobuf")

        response = await http_error_translator(Request(scope, receive), answered)
        await response(scope, receive, send)

    def _change(self) -> None:
        """Whoever waits looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _waited(self, request: Request, look):
        """What ``look`` finds, once it finds something; None if time is up, or nobody waits for it any more."""
        deadline = time.monotonic() + bundles.WAIT_SECONDS
        while True:
            changed = self._changed
            if await request.is_disconnected():
                return None
            if (found := look()) is not None:
                return found
            if (left := deadline - time.monotonic()) <= 0.0:
                return None
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), min(left, LOOK_SECONDS))

    async def _node_pulls(self, request: Request, parts: list[bytes]) -> list[bytes]:
        asked = PullMessagesRequest.FromString(parts[0])
        state = _as_node(request, asked)
        node = asked.node.node_id

        def look() -> PullMessagesResponse | None:
            if node not in self._given:
                found = fleet_handlers.pull_messages(asked, state, state.object_store)
                if not found.messages_list:
                    return None
                self._given[node] = found
            return self._given[node]

        found = await self._waited(request, look)
        if found is None:
            return [PullMessagesResponse().SerializeToString()]
        run = found.messages_list[0].metadata.run_id

        def pull(part: str):
            return fleet_handlers.pull_object(PullObjectRequest(node=asked.node, run_id=run, object_id=part), state)

        contents = await _contents(found.message_object_trees[0], pull)
        if contents is None:
            self._take_back(node, state)
            return [PullMessagesResponse().SerializeToString()]
        return [found.SerializeToString(), *contents]

    def _take_back(self, node: int, state) -> None:
        """The node has answered its message, or can't ever have it."""
        given = self._given.pop(node, PullMessagesResponse())
        for message in given.messages_list:
            state.object_store.delete(message.metadata.message_id)

    async def _node_pushes(self, request: Request, parts: list[bytes]) -> list[bytes]:
        asked = PushMessagesRequest.FromString(parts[0])
        state = _as_node(request, asked)
        objects = [PushObjectRequest.FromString(part) for part in parts[1:]]

        def stored() -> None:
            found = fleet_handlers.push_messages(asked, state)
            for one in _wanted(objects, asked.node, found):
                fleet_handlers.push_object(one, state)

        await run_in_threadpool(stored)
        node = asked.node.node_id
        given = [message.metadata.message_id for message in self._given[node].messages_list] if node in self._given else []
        if given == [message.metadata.reply_to_message_id for message in asked.messages_list]:
            self._take_back(node, state)
        self._change()
        return []

    async def _relay_pushes(self, request: Request, parts: list[bytes]) -> list[bytes]:
        asked = PushAppMessagesRequest.FromString(parts[0])
        state, task = _as_relay(request)
        objects = [PushObjectRequest.FromString(part) for part in parts[1:]]

        def stored() -> list[str]:
            found = runtime_handlers.push_messages(asked, state, task)
            for one in _wanted(objects, objects[0].node, found):
                runtime_handlers.push_object(one, state, task)
            return [number for number in found.message_ids if number]

        sent = await run_in_threadpool(stored)
        self._unanswered.setdefault(task.run_id, set()).update(sent)
        self._change()
        return []

    async def _relay_pulls(self, request: Request, _parts: list[bytes]) -> list[bytes]:
        state, task = _as_relay(request)
        unanswered = self._unanswered.setdefault(task.run_id, set())

        def look() -> PullAppMessagesResponse | None:
            if not unanswered:
                return None
            found = runtime_handlers.pull_messages(PullAppMessagesRequest(message_ids=unanswered), state, task)
            over = {message.metadata.reply_to_message_id for message in found.messages_list}
            unanswered.difference_update(over)
            # Of a node that is gone Flower itself says that it doesn't answer.
            for node in [node for node, given in self._given.items() if given.messages_list[0].metadata.message_id in over]:
                self._take_back(node, state)
            return found if found.messages_list else None

        found = await self._waited(request, look) or PullAppMessagesResponse()

        def pull(part: str):
            content = state.get_object(task.run_id, part)
            return PullObjectResponse(object_found=content is not None, object_available=bool(content), object_content=content)

        kept, every = PullAppMessagesResponse(), []
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            contents = await _contents(tree, pull)
            if contents is not None:
                kept.messages_list.append(message)
                kept.message_object_trees.append(tree)
                every += contents
            state.object_store.delete(message.metadata.message_id)
        return [kept.SerializeToString(), *every]


def _as_node(request: Request, asked):
    """Flower's state, for a node that is who it says. Raises HTTPException."""
    request.state.protobuf_request = asked
    authenticate_node(request)
    return get_linkstate(request)


def _as_relay(request: Request):
    """Flower's state, and the task whose token was sent. Raises FlowerError."""
    state = get_linkstate(request)
    return state, authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), state)


def _wanted(objects: list[PushObjectRequest], node, found):
    """Those that the server hasn't yet, in the session that it began for them."""
    for one in objects:
        if one.object_id in found.objects_to_push:
            one.node.CopyFrom(node)
            one.session_id = found.session_id
            yield one


async def _contents(tree, pull) -> list[bytes] | None:
    """Of a message and its parts, in the tree's order; None if one never comes."""
    found, deadline = [], time.monotonic() + UPLOAD_SECONDS
    for part in iterate_object_tree(tree):
        while not (one := pull(part.object_id)).object_available:
            if not one.object_found or time.monotonic() > deadline:
                return None
            await asyncio.sleep(0.005)
        found.append(one.object_content)
    return found
