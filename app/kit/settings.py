r"""Settings of the service, from the environment with the prefix ``ZETADP_``. Each has one meaning and a default that works alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, final

from limits import parse
from pydantic import AfterValidator, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from zetadp.app.kit.key_text import KeyText

Seconds = Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)]
Days = Annotated[float, Field(gt=0.0, le=36_500.0, allow_inf_nan=False)]
ExecutorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


def _postgresql_driver(url: str) -> str:
    """The URL with the driver this service uses; ``postgresql://`` alone would ask for psycopg2."""
    for plain in ("postgresql://", "postgres://"):
        if url.startswith(plain):
            return "postgresql+psycopg://" + url.removeprefix(plain)
    return url


def _rate(text: str) -> str:
    """The text of a rate, like 20/minute."""
    try:
        parse(text)
    except ValueError:
        raise ValueError(f"must be a rate such as 20/minute, got {text[:50]!a}") from None
    return text


def _host_names(text: str) -> str:
    """Names with commas between them, in small letters."""
    names = [name.strip().lower().rstrip(".") for name in text.split(",") if name.strip()]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"must be host names separated by commas, such as zetadp.example.org, got {name[:100]!a}")
    return ",".join(names)


def _device(text: str) -> str:
    """What a worker runs its jobs on."""
    if text in ("auto", "cpu", "cuda"):
        return text
    kind, _, items = text.partition(":")
    listed = items.split(",")
    # CUDA gives a process one part of a divided accelerator and nothing beside it.
    alone = len(listed) == 1 or not any(item.startswith("MIG-") for item in listed)
    if kind != "cuda" or not all(map(_ACCELERATOR.fullmatch, listed)) or len(set(listed)) < len(listed) or not alone:
        raise ValueError(
            "must be auto, cpu, cuda, or cuda: with accelerators separated by commas, like cuda:0,1, each a number or a GPU-... id, or "
            f"one MIG-... id, got {text[:100]!a}"
        )
    return text


def _addresses(text: str) -> str:
    """Addresses with commas between them."""
    found = [address.strip() for address in text.split(",") if address.strip()]
    for address in found:
        if not _ADDRESS.fullmatch(address):
            raise ValueError(f"must be http or https addresses separated by commas, got {address[:100]!a}")
    return ",".join(found)


StorageUrl = Annotated[str, Field(pattern=r"^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}){0,8}/?)?$")]
Rate = Annotated[str, AfterValidator(_rate)]
KubernetesLabel = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")]
_ACCELERATOR = re.compile(r"[0-9]{1,3}|(GPU|MIG)-[0-9A-Za-z/-]{1,80}")
_ADDRESS = re.compile(r"https?://[\x21-\x2b\x2d-\x7e]{1,500}")
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


@final
class Settings(BaseSettings):
    r"""Settings of the service and its workers: folders, addresses, limits and times.

    Attributes:
      data_dir: folder for everything that the service writes to disk: database, job folders, keys (``ZETADP_DATA_DIR``).
      storage_url: where checkpoints, artifacts, uploads and data sets are: empty for ``data_dir``, which all workers then share, or
        ``s3://BUCKET/PREFIX`` for a bucket of S3 or of a store that speaks its protocol. Credentials, region and endpoint come from the
        environment (``AWS_ACCESS_KEY_ID``, ``AWS_REGION``, ``AWS_ENDPOINT_URL`` and so on) or from the machine's role.
      storage_cache_bytes: how much of the disk of ``data_dir`` copies of stored files may take; a larger file isn't kept.
      data_sets_dir: folder of file-based data sets; every ``folder`` of a training spec is in it. Without it only data sets that come with
        the libraries can be used (``ZETADP_DATA_SETS_DIR``, which readers of data sets and training processes see).
      federation: a coordinator's settings, an absolute path, which training processes see; without it no job can have sites of its own.
      database_url: SQLAlchemy URL; a SQLite file in ``data_dir`` if absent, else ``postgresql://...`` (``ZETADP_DATABASE_URL``).
      handbook_dir: folder of the handbook built by ``make docs``, served under ``/handbook``; ``build/docs`` next to the code if
        absent.
      database_busy_seconds: how long a statement waits for a lock before it fails.
      host: IPv4 address that the API listens on; must be loopback until there are keys.
      allowed_hosts: names that the service answers under, in addition to addresses and names without a dot; separated by commas.
      trusted_proxies: addresses of reverse proxies, separated by commas, whose ``X-Forwarded-For`` is trusted; none if empty.
      admin_key: an admin key that the operator made (``zetadp keys generate``); its digest is stored at the first start with it.
      open_calculators: whether calculators, papers and recipes answer without a key; if not, they need the scope ``calculate``.
      requests_per_key: how many requests one key may send.
      requests_per_address: how many requests without a key one address may send.
      failures_per_address: how many requests without the required valid key one address may send.
      port: port that the API listens on; 0 picks a free one.
      processes: how many processes of the service share its port; ``zetadp serve --processes`` sets it.
      log_level: the least severe log lines that are written (to stderr).
      log_format: how log lines are written: one JSON object per line, plain text, or (``auto``) text on a terminal and JSON elsewhere.
      minimum_free_bytes: with less free space on the disk of ``data_dir``, new jobs are refused and the service isn't ready.
      keep_job_files_days: how long the folder of an ended job is kept, with its model and log; for ever if absent. Its certificate and
        its ledger entries are always kept.
      keep_job_events_days: how long log lines, progress and metrics of an ended job are kept; for ever if absent. The last ones stay.
      keep_idempotency_days: how long a job's Idempotency-Key returns the job that it made; for ever if absent.
      keep_webhook_days: how long the address and the secret of a job's webhook are kept after its end; for ever if absent.
      keep_audit_log_days: how long an entry of the audit log is kept, at least 30 days; for ever if absent.
      keep_call_days: how long the queue keeps answered calls.
      executor_id: name of this worker, which no other worker that runs at the same time may have; if absent, its host's name and its
        device, and a number if that worker isn't the only one.
      device: what this worker's jobs run on: ``cpu``; ``cuda``; ``cuda:1`` for the second accelerator, ``cuda:0,1`` for two, or the ids
        that the driver gives accelerators and their parts (``cuda:MIG-...``); ``auto`` takes whatever the machine has. Each accelerator
        belongs to one worker. Jobs go only to a worker that has what they ask for.
      accept_unfit_jobs: whether jobs are taken that ask for more than any living worker has: they wait for one that is started later.
      launcher: where ``zetadp launcher`` starts a worker for each job: ``local`` (this machine), ``slurm`` or ``kubernetes``.
      launches: how many workers it may have asked for at a time.
      launcher_seconds: how often it compares what is queued with what the cluster runs.
      launch_command: what starts a worker on the cluster's machines, as a shell would read it; ``--job`` and the job's id follow.
      slurm_options: further options of ``sbatch``, like ``--partition=gpu --account=ward-3``.
      kubernetes_namespace: where the Jobs of Kubernetes are made; if empty in the launcher's own, or its kubeconfig's.
      kubernetes_image: the image of workers in Kubernetes, unless ``kubernetes_pod`` names it.
      kubernetes_pod: a YAML file with the pod of such a worker: volumes, secrets as environment, tolerations and so on. The launcher adds
        command, resources and limits. Without it a worker gets no settings and can't reach the database.
      kubernetes_queue: Kueue's queue for the Jobs; if empty Kubernetes starts them by itself.
      kubernetes_priority: Kueue's priority class for them; its default if empty.
      lease_seconds: how long a worker may be silent before other workers get its jobs.
      maximum_worker_deaths: a job ends ``failed``, without a further attempt, after this many workers died while running it.
      cancel_poll_seconds: how often a worker checks whether its job was cancelled; bounds how late it notices a cancellation.
      stop_grace_seconds: how long a training process may take to write its checkpoint after it is asked to stop, before it is killed.
      shutdown_seconds: how long a worker may take to end beyond ``stop_grace_seconds``, whatever its queue and its database do; then its
        process ends as it is, and its jobs go to other workers once its lease has run out.
      resubmit_seconds: how often an idle worker looks for waiting jobs by itself, in case the queue doesn't call it.
      webhook_hosts: private names and addresses, separated by commas, that webhooks may go to, also without TLS.
      event_poll_seconds: how often an event stream looks for new events of its job.
      calculation_seconds: how much processor time one calculation may take before its request is refused; it can then be sent as a job.
      batch_seconds: how much a whole batch may take; requests that it hasn't reached by then are refused likewise.
      verification_seconds: how much a certificate's verification may take.
      calculation_job_seconds: how much a calculation sent as a job may take.
      calculation_wait_seconds: how long a calculation may wait for its turn before its request is refused.
      calculating_processes: how many processes calculate for each process of the service, at least 2; if absent as many as there are
        processors for it. With 0 the service calculates itself, and expensive questions delay everybody.
      calculation_bytes: how much memory a calculating process may use beside what it starts with; a calculation that needs more is refused.
      calculations_per_address: how many unanswered calculations one address may have without a key.
      calculations_per_key: how many one key may have.
      preparing_seconds: how long a worker may take to read a submitted training's data set and to calibrate its noise.
      training_bytes: how much memory the processes of one job may use before the worker ends them and fails the job; no limit if absent.
        It counts what is theirs alone or shared among them, in memory or swapped out, not files mapped into memory and not an
        accelerator's memory, and it is looked at every ``cancel_poll_seconds``.
      time_stamps: addresses of time-stamping authorities (RFC 3161), separated by commas: before a training's first step each is asked to
        stamp the log's head with its plan. None if empty, and certificates say so.
      least_time_stamps: how many of them must have answered before a training begins; with fewer it fails, and has released nothing.
      witnesses: a file with the witnesses of the log, one a line: its address and its key. They are asked to sign the log's head before a
        training's first step, and after each certificate.
      least_witnesses: how many of them must have signed before a training begins; with fewer it fails, and has released nothing.
      keep_noise_keys: whether each training's noise follows from a secret key that its plan is committed to, and that is kept: an auditor
        who is given it can repeat the run (``zetadp rerun``). The guarantee doesn't hold against anybody who has it.
      keep_noise_keys_days: how long such a key is kept after its job's end; then it is deleted, and nobody can repeat the run.
      tpm: the machine's TPM 2.0 that workers ask for a quote in each certificate: a device that shares it (``/dev/tpmrm0``), or another way
        in which tpm2-tools reach it. All certificates with quotes of one TPM show that they are from one machine. None is asked if absent.
      confidential: the folder in which the kernel gives workers this confidential machine's own report for each certificate
        (``/sys/kernel/config/tsm/report``; AMD SEV-SNP and Intel TDX). Reports name the machine. None is asked for if absent.
      policy: a YAML file that says which trainings are accepted; one that can't meet it is refused before it runs, with the field and the
        reason. Without it every training is accepted.
      tenant_jobs: how many jobs of one tenant may be unfinished at a time, calculations included.
      upload_bytes: the largest size of one uploaded file.
      tenant_bytes: the total size that one tenant's uploads and data sets may have.
      upload_seconds: how long receiving one file may take.
      reading_seconds: how long reading an uploaded file, or making a data set, may take.
      reading_bytes: how much memory reading a file, or making a data set, may take.
      profile_cache_bytes: about how much memory the cache of earlier answers may use; 0 keeps none.

    >>> Settings(data_dir=Path("/data")).sqlalchemy_url
    'sqlite:////data/zetadp.sqlite'
    >>> Settings(database_url="postgresql://db/zetadp").sqlalchemy_url
    'postgresql+psycopg://db/zetadp'
    """

    model_config = SettingsConfigDict(env_prefix="ZETADP_", frozen=True, extra="forbid", hide_input_in_errors=True)

    data_dir: Path = Path("zetadp-data")
    storage_url: StorageUrl = ""
    storage_cache_bytes: Annotated[int, Field(ge=0, le=2**60)] = 20 * 2**30
    data_sets_dir: Path | None = None
    federation: Path | None = None
    database_url: Annotated[str, AfterValidator(_postgresql_driver)] | None = None
    handbook_dir: Path | None = None
    database_busy_seconds: Seconds = 30.0
    host: str = "127.0.0.1"
    allowed_hosts: Annotated[str, AfterValidator(_host_names)] = ""
    trusted_proxies: str = ""
    admin_key: SecretStr | None = None
    open_calculators: bool = True
    requests_per_key: Rate = "12000/minute"
    requests_per_address: Rate = "3000/minute"
    failures_per_address: Rate = "30/minute"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"
    minimum_free_bytes: Annotated[int, Field(ge=0, le=2**60)] = 64 * 2**20
    keep_job_files_days: Days | None = None
    keep_job_events_days: Days | None = None
    keep_idempotency_days: Days | None = 30.0
    keep_webhook_days: Days | None = 30.0
    keep_audit_log_days: Annotated[float, Field(ge=30.0, le=36_500.0, allow_inf_nan=False)] | None = None
    keep_call_days: Days = 1.0
    executor_id: ExecutorName | None = None
    device: Annotated[str, AfterValidator(_device), Field(max_length=1000)] = "auto"
    accept_unfit_jobs: bool = False
    launcher: Literal["local", "slurm", "kubernetes"] = "local"
    launches: Annotated[int, Field(ge=1, le=100_000)] = 64
    launcher_seconds: Seconds = 2.0
    launch_command: Annotated[str, Field(min_length=1, max_length=1000)] = "zetadp worker"
    slurm_options: Annotated[str, Field(max_length=2000)] = ""
    kubernetes_namespace: Annotated[str, Field(pattern=r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$")] = ""
    kubernetes_image: Annotated[str, Field(pattern=r"^[A-Za-z0-9./:@_-]*$", max_length=500)] = ""
    kubernetes_pod: Path | None = None
    kubernetes_queue: KubernetesLabel = ""
    kubernetes_priority: KubernetesLabel = ""
    lease_seconds: Annotated[float, Field(ge=0.5, le=3600.0, allow_inf_nan=False)] = 6.0
    maximum_worker_deaths: Annotated[int, Field(ge=1, le=100)] = 3
    cancel_poll_seconds: Seconds = 0.2
    stop_grace_seconds: Seconds = 10.0
    shutdown_seconds: Seconds = 15.0
    resubmit_seconds: Seconds = 1.0
    webhook_hosts: str = ""
    event_poll_seconds: Seconds = 0.2
    calculation_seconds: Seconds = 10.0
    batch_seconds: Seconds = 120.0
    verification_seconds: Seconds = 20.0
    calculation_wait_seconds: Seconds = 30.0
    calculating_processes: Annotated[int, Field(ge=0, le=1024)] | None = None
    calculations_per_address: Annotated[int, Field(ge=1, le=10_000)] = 8
    calculations_per_key: Annotated[int, Field(ge=1, le=10_000)] = 64
    calculation_bytes: Annotated[int, Field(ge=2**27, le=2**50)] = 2 * 2**30
    calculation_job_seconds: Seconds = 3600.0
    preparing_seconds: Seconds = 3600.0
    training_bytes: Annotated[int, Field(ge=2**28, le=2**50)] | None = None
    time_stamps: Annotated[str, AfterValidator(_addresses), Field(max_length=4000)] = ""
    least_time_stamps: Annotated[int, Field(ge=0, le=16)] = 0
    witnesses: Path | None = None
    least_witnesses: Annotated[int, Field(ge=0, le=31)] = 0
    keep_noise_keys: bool = False
    keep_noise_keys_days: Days = 365.0
    tpm: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    confidential: Path | None = None
    policy: Path | None = None
    tenant_jobs: Annotated[int, Field(ge=1, le=10**9)] = 20_000
    upload_bytes: Annotated[int, Field(ge=1, le=2**40)] = 2 * 2**30
    tenant_bytes: Annotated[int, Field(ge=0, le=2**60)] = 20 * 2**30
    upload_seconds: Seconds = 3600.0
    reading_seconds: Seconds = 120.0
    reading_bytes: Annotated[int, Field(ge=2**30, le=2**40)] = 4 * 2**30
    profile_cache_bytes: Annotated[int, Field(ge=0, le=2**40)] = 32 * 2**20

    @field_validator("database_url")
    @classmethod
    def _supported(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("sqlite:///", "postgresql+psycopg://")):
            # The URL may hold a password, so only its scheme is repeated.
            raise ValueError(f"database_url must start with sqlite:/// or postgresql://, got {url.split(':', 1)[0]!r}")
        return url

    @field_validator("calculating_processes")
    @classmethod
    def _lanes(cls, count: int | None) -> int | None:
        if count == 1:
            raise ValueError("must be 0, or at least 2 (one for short calculations, one for long ones), got 1")
        return count

    @field_validator("admin_key")
    @classmethod
    def _key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and KeyText.read(key.get_secret_value()) is None:
            raise ValueError("must be a key made by `zetadp keys generate`, got something else")
        return key

    @property
    def sqlalchemy_url(self) -> str:
        """Where our own tables live."""
        return self.database_url or self._sqlite("zetadp.sqlite")

    @property
    def queue_url(self) -> str:
        """Where the queue keeps its tables: its own file next to ours, or its own schema in the same PostgreSQL database."""
        if self.database_url is not None and self.database_url.startswith("postgresql"):
            return self.database_url
        return self._sqlite("queue.sqlite")

    def job_dir(self, job_id: str) -> Path:
        """The folder of one job: request, checkpoint, log, result and artifacts."""
        return self.data_dir.absolute() / "jobs" / job_id

    @property
    def facts_dir(self) -> Path:
        """The folder of what is known about data sets that were read before (``zetadp/trainer/data/kept_facts.py``)."""
        return self.data_dir.absolute() / "data-set-facts"

    @property
    def uploads_dir(self) -> Path:
        """The folder of uploaded files, one folder in it for each tenant."""
        return self.data_dir.absolute() / "uploads"

    @property
    def made_data_sets_dir(self) -> Path:
        """The folder of the data sets that were made of uploads, one folder in it for each."""
        return self.data_dir.absolute() / "data-sets"

    def _sqlite(self, name: str) -> str:
        return f"sqlite:///{self.data_dir.absolute() / name}"
