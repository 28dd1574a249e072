r"""Settings of the service, from the environment with the prefix ``ZETADP_``. Each has one meaning and a default that works alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, final

from pydantic import AfterValidator, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

Seconds = Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)]
ExecutorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


def _postgresql_driver(url: str) -> str:
    """The URL with the driver this service uses; ``postgresql://`` alone would ask for psycopg2."""
    for plain in ("postgresql://", "postgres://"):
        if url.startswith(plain):
            return "postgresql+psycopg://" + url.removeprefix(plain)
    return url


@final
class Settings(BaseSettings):
    r"""Where the service keeps its things, and how patient it is.

    Attributes:
      data_dir: folder of everything on disk that the service writes: database, job folders, keys (``ZETADP_DATA_DIR``).
      data_sets_dir: folder of the data sets that are read from files; every ``folder`` of a training spec lies in it. Without it only data
        sets that come with the libraries can be used (``ZETADP_DATA_SETS_DIR``, which readers of data sets and training processes see).
      database_url: SQLAlchemy URL; a SQLite file in ``data_dir`` if absent, else ``postgresql://...`` (``ZETADP_DATABASE_URL``).
      database_busy_seconds: how long a statement waits for another's lock before it fails.
      host: address the API listens on.
      port: its port; 0 takes a free one.
      log_level: least severe log line that is written (to stderr).
      executor_id: name of this worker; two workers that run at the same time need two names.
      maximum_worker_deaths: a job that has taken this many workers down with it ends ``failed`` and isn't tried again.
      cancel_poll_seconds: how often a worker looks whether its job was cancelled; it bounds how late a cancellation is seen.
      stop_grace_seconds: how long a training process told to stop may take to write its checkpoint before it is killed.
      resubmit_seconds: how often a worker looks for jobs that were stored but never reached the queue.
      event_poll_seconds: how often an event stream looks for new events of its job.
      calculation_seconds: how long one calculation may take before its request is refused and told to come as a job.
      batch_seconds: how long a whole batch may take; what it hasn't reached by then is refused likewise.
      calculation_job_seconds: how long a calculation that came as a job may take.
      profile_cache_bytes: about how much memory the answers given before may fill; 0 keeps none.

    >>> Settings(data_dir=Path("/data")).sqlalchemy_url
    'sqlite:////data/zetadp.sqlite'
    >>> Settings(database_url="postgresql://db/zetadp").sqlalchemy_url
    'postgresql+psycopg://db/zetadp'
    """

    model_config = SettingsConfigDict(env_prefix="ZETADP_", frozen=True, extra="forbid", hide_input_in_errors=True)

    data_dir: Path = Path("zetadp-data")
    data_sets_dir: Path | None = None
    database_url: Annotated[str, AfterValidator(_postgresql_driver)] | None = None
    database_busy_seconds: Seconds = 30.0
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    executor_id: ExecutorName = "local"
    maximum_worker_deaths: Annotated[int, Field(ge=1, le=100)] = 3
    cancel_poll_seconds: Seconds = 0.2
    stop_grace_seconds: Seconds = 10.0
    resubmit_seconds: Seconds = 5.0
    event_poll_seconds: Seconds = 0.2
    calculation_seconds: Seconds = 10.0
    batch_seconds: Seconds = 120.0
    calculation_job_seconds: Seconds = 3600.0
    profile_cache_bytes: Annotated[int, Field(ge=0, le=2**40)] = 32 * 2**20

    @field_validator("database_url")
    @classmethod
    def _supported(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("sqlite:///", "postgresql+psycopg://")):
            # The URL may hold a password, so only its scheme is repeated.
            raise ValueError(f"database_url must start with sqlite:/// or postgresql://, got {url.split(':', 1)[0]!r}")
        return url

    @property
    def sqlalchemy_url(self) -> str:
        """Where our own tables live."""
        return self.database_url or self._sqlite("zetadp.sqlite")

    @property
    def queue_url(self) -> str:
        """Where the queue keeps its tables: its own file beside ours, or its own schema in the same PostgreSQL database."""
        if self.database_url is not None and self.database_url.startswith("postgresql"):
            return self.database_url
        return self._sqlite("queue.sqlite")

    def job_dir(self, job_id: str) -> Path:
        """The folder of one job: request, checkpoint, log, result and artifacts."""
        return self.data_dir.absolute() / "jobs" / job_id

    def _sqlite(self, name: str) -> str:
        return f"sqlite:///{self.data_dir.absolute() / name}"
