r"""Errors of uploads and data sets. They carry data, and each says how a request is answered with it."""

from __future__ import annotations

from collections.abc import Mapping

from zetadp.app.kit.errors import ProblemType, ServiceError

ENDS_CONNECTION = {"Connection": "close"}
"""The rest of the body is on its way, and nobody will read it."""


class UploadError(ServiceError):
    """Base of every error of this package that a user can cause."""


class UploadNotFound(UploadError):
    """The tenant has no upload with this id."""

    problem = ProblemType(404, "upload-not-found", "No such upload.")

    def __init__(self, upload_id: str) -> None:
        self.upload_id = upload_id
        super().__init__(f"there is no upload {upload_id!r}")


class DataSetNotFound(UploadError):
    """The tenant has no data set with this id."""

    problem = ProblemType(404, "data-set-not-found", "No such data set.")

    def __init__(self, data_set_id: str) -> None:
        self.data_set_id = data_set_id
        super().__init__(f"there is no data set {data_set_id!r}")


class DataSetInUse(UploadError):
    """A job that hasn't ended uses the data set."""

    problem = ProblemType(409, "data-set-in-use", "A job uses the data set.")

    def __init__(self, data_set_id: str, job_id: str) -> None:
        self.data_set_id = data_set_id
        self.job_id = job_id
        super().__init__(f"data set {data_set_id!r} is used by job {job_id!r}, which hasn't ended")


class UploadKeyReused(UploadError):
    """The Idempotency-Key was used before, either with another request or for one that isn't done yet."""

    problem = ProblemType(409, "upload-idempotency-conflict", "The Idempotency-Key was already used with another request.")

    def __init__(self, key: str, *, is_done: bool) -> None:
        self.key = key
        how = "with another request" if is_done else "for a request that isn't done yet"
        super().__init__(f"Idempotency-Key {key!r} was used before {how}")


class UploadTooLarge(UploadError):
    """A body larger than an upload may be."""

    problem = ProblemType(413, "upload-too-large", "The upload is too large.")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"expected at most {limit} bytes in one upload")

    @property
    def headers(self) -> Mapping[str, str]:
        return ENDS_CONNECTION


class QuotaExceeded(UploadError):
    """More data than the tenant's quota allows."""

    problem = ProblemType(409, "quota-exceeded", "The tenant's storage quota is used up.")

    def __init__(self, asked: int, used: int, quota: int) -> None:
        self.asked, self.used, self.quota = asked, used, quota
        super().__init__(
            f"expected at most {max(0, quota - used)} bytes, got {asked}: uploads and data sets already take {used} of the tenant's "
            f"{quota} bytes; delete some"
        )

    @property
    def headers(self) -> Mapping[str, str]:
        return ENDS_CONNECTION


class UploadCutOff(UploadError):
    """The body was cut off or took too long; nothing of it is kept."""

    problem = ProblemType(400, "upload-cut-off", "The upload was cut off.")

    def __init__(self, received: int) -> None:
        self.received = received
        super().__init__(f"expected the whole body in time, got only {received} bytes; nothing is kept")


class ReadersBusy(UploadError):
    """Other files are being read, and this one didn't get its turn."""

    problem = ProblemType(503, "readers-busy", "Too many files are being read.")

    def __init__(self, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"too many files are being read; try again in {retry_after_seconds} s")

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(self.retry_after_seconds)}
