r"""OpenTelemetry traces, from the request to the released steps: an optional extra, off unless ``OTEL_TRACES_EXPORTER`` names an exporter.

A span holds what the API shows of a job anyway: its id, its attempt, its steps. It never holds anything of the data, of a sample or of a
metric. How long a step takes tells how many records it drew, so nothing is timed that the job's history doesn't tell with its time: spans
of steps begin and end with its reports. While traces are off, its SDK isn't imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, final

from fastapi.telemetry import TelemetryConfig

from zetadp.mechanisms.errors import InvalidParameter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider  # pyright: ignore[reportMissingImports]

VARIABLE = "OTEL_TRACES_EXPORTER"
"""OpenTelemetry's own: the name of an installed exporter, such as ``otlp`` or ``console``. ``none``, like nothing, is off."""
LONGEST_PARENT = 55
"""Characters of a W3C traceparent of version 00."""
UNTRACED = ("/livez", "/readyz", "/metrics", "/static")
"""What is asked all the time, or isn't work."""

Kind = Literal["producer", "consumer", "internal"]


@final
class _State:
    provider: TracerProvider | None = None


def configure(service: str) -> None:
    r"""Send spans of this process to the exporter that the environment names; without one, do nothing.

    Args:
      service: its name in traces, unless ``OTEL_SERVICE_NAME`` gives another.
    Raises:
      InvalidParameter: OpenTelemetry or the exporter isn't installed.
    """
    name = os.environ.get(VARIABLE, "none").strip()
    if name in ("", "none") or _State.provider is not None:
        return
    from importlib.metadata import entry_points

    exporters = {found.name: found for found in entry_points(group="opentelemetry_traces_exporter")}
    if name not in exporters:
        have = ", ".join(sorted(exporters)) or "no exporter; pip install 'zetadp[opentelemetry]'"
        raise InvalidParameter(VARIABLE, f"none, or the name of an installed exporter (there is {have})", name)
    from opentelemetry.sdk.resources import Resource  # pyright: ignore[reportMissingImports]
    from opentelemetry.sdk.trace import TracerProvider  # pyright: ignore[reportMissingImports]
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # pyright: ignore[reportMissingImports]

    named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(exporters[name].load()()))
    use(provider)


def use(provider: TracerProvider | None) -> None:
    """Send spans to this provider, or to none. What requests ask for by query, such as labels, is left out of them."""
    if provider is not None:
        from opentelemetry.sdk.trace import Span, SpanProcessor  # pyright: ignore[reportMissingImports]

        class WithoutQueries(SpanProcessor):
            def on_start(self, span: Span, parent_context: object = None) -> None:  # noqa: ARG002
                if "url.query" in (span.attributes or {}):
                    span.set_attribute("url.query", "")

        provider.add_span_processor(WithoutQueries())
    _State.provider = provider


def close() -> None:
    """Send what is left, and stop."""
    if _State.provider is not None:
        _State.provider.shutdown()
        _State.provider = None


def of_requests() -> TelemetryConfig:
    """FastAPI's own telemetry: spans of requests while traces are on, whose parent is a caller's ``traceparent``; nothing else.

    By default it also logs exceptions with their text, which may quote data, to whatever the process or its environment set up.
    """
    return {
        "tracing": _State.provider is not None,
        "tracer_provider": _State.provider,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
        "exclude": lambda scope: scope.get("path", "").startswith(UNTRACED),
    }


@contextmanager
def span(name: str, attributes: Mapping[str, str | int], kind: Kind = "internal", parent: str | None = None) -> Generator[None]:
    r"""A span around what is done inside.

    Args:
      parent: the W3C traceparent of a span of another process; None for the present one.
    """
    if _State.provider is None:
        yield
        return
    from opentelemetry.trace import SpanKind

    tracer = _State.provider.get_tracer("zetadp")
    # Of an exception its text isn't kept: it may quote data.
    with tracer.start_as_current_span(
        name,
        context=_context(parent),
        kind=SpanKind[kind.upper()],
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        try:
            yield
        except Exception as error:
            made.set_attribute("error.type", type(error).__name__)
            raise


@final
class Stretches:
    """Spans one after another, each from the last report to the next."""

    def __init__(self) -> None:
        self._since = time.time_ns()

    def end(self, name: str, attributes: Mapping[str, str | int]) -> None:
        """A span from the last report until now."""
        begun, self._since = self._since, time.time_ns()
        if _State.provider is not None:
            _State.provider.get_tracer("zetadp").start_span(name, start_time=begun, attributes=attributes).end(self._since)


def traceparent() -> str | None:
    """The present span's W3C traceparent, for another process; None while traces are off."""
    if _State.provider is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def _context(parent: str | None) -> Any:
    if parent is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": parent})
