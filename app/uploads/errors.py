r"""Errors of uploads and data sets. They carry data, and each says how a request is answered with it."""

from __future__ import annotations

from collections.abc import Mapping

from app.kit.errors import ProblemType, ServiceError

ENDS_CONNECTION = {"Connection": "close"}
"""The rest of the body is on its way, and nobody will read it."""


class UploadError(ServiceError):
    """Base of every error of this package that a user can cause."""


class UploadNotFound(UploadError):
    """The tenant has no upload of this id."""

    problem = ProblemType(404, "upload-not-found", "No such upload.")

    def __init__(self, upload_id: str) -> None:
        self.upload_id = upload_id
        super().__init__(f"there is no upload {upload_id!r}")


class DataSetNotFound(UploadError):
    """The tenant has no data set of this id."""

    problem = ProblemType(404, "data-set-not-found", "No such data set.")

    def __init__(self, data_set_id: str) -> None:
        self.data_set_id = data_set_id
        super().__init__(f"there is no data set {data_set_id!r}")


class DataSetInUse(UploadError):
    """A job that hasn't ended trains on the data set."""

    problem = ProblemType(409, "data-set-in-use", "A job uses the data set.")

    def __init__(self, data_set_id: str, job_id: str) -> None:
        self.data_set_id = data_set_id
        self.job_id = job_id
        super().__init__(f"data set {data_set_id!r} is used by job {job_id!r}, which hasn't ended")


class UploadKeyReused(UploadError):
    """The Idempotency-Key was used before, with another request, or for one that isn't done yet."""

    problem = ProblemType(409, "upload-idempotency-conflict", "The Idempotency-Key was used with another request.")

    def __init__(self, key: str, *, is_done: bool) -> None:
        self.key = key
        how = "with another request" if is_done else "for a request that isn't done yet"
        super().__init__(f"Idempotency-Key {key!r} was used before {how}")


class UploadTooLarge(UploadError):
    """A body beyond what one upload may have."""

    problem = ProblemType(413, "upload-too-large", "The upload is too large.")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"expected at most {limit} bytes in one upload")

    @property
    def headers(self) -> Mapping[str, str]:
        return ENDS_CONNECTION


class QuotaExceeded(UploadError):
    """More than the tenant has room for."""

    problem = ProblemType(409, "quota-exceeded", "The tenant's room is taken.")

    def __init__(self, asked: int, used: int, quota: int) -> None:
        self.asked, self.used, self.quota = asked, used, quota
        super().__init__(
            f"expected at most {max(0, quota - used)} bytes, of which {asked} were asked for: uploads and data sets take {used} of the "
            f"{quota} bytes that a tenant has; delete some"
        )

    @property
    def headers(self) -> Mapping[str, str]:
        return ENDS_CONNECTION


class UploadCutOff(UploadError):
    """The body ended before its end, or took too long; nothing of it is kept."""

    problem = ProblemType(400, "upload-cut-off", "The upload didn't come to its end.")

    def __init__(self, received: int) -> None:
        self.received = received
        super().__init__(f"expected the whole body in time, got {received} bytes of it; nothing is kept")


class ReadersBusy(UploadError):
    """Others' files are being read, and this one's turn didn't come."""

    problem = ProblemType(503, "readers-busy", "Too many files are being read.")

    def __init__(self, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"too many files are being read; try again in {retry_after_seconds} s")

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(self.retry_after_seconds)}
