r"""Errors of uploads and data sets. They carry data and know nothing of HTTP; ``app/errors.py`` has the table to status codes."""

from __future__ import annotations


class UploadError(Exception):
    """Base of every error of this package that a user can cause."""


class UploadNotFound(UploadError):
    """The tenant has no upload with this id."""

    def __init__(self, upload_id: str) -> None:
        self.upload_id = upload_id
        super().__init__(f"there is no upload {upload_id!r}")


class DataSetNotFound(UploadError):
    """The tenant has no data set with this id."""

    def __init__(self, data_set_id: str) -> None:
        self.data_set_id = data_set_id
        super().__init__(f"there is no data set {data_set_id!r}")


class DataSetInUse(UploadError):
    """A job that hasn't ended uses the data set."""

    def __init__(self, data_set_id: str, job_id: str) -> None:
        self.data_set_id = data_set_id
        self.job_id = job_id
        super().__init__(f"data set {data_set_id!r} is used by job {job_id!r}, which hasn't ended")


class UploadKeyReused(UploadError):
    """The Idempotency-Key was used before, either with another request or for one that isn't done yet."""

    def __init__(self, key: str, *, is_done: bool) -> None:
        self.key = key
        how = "with another request" if is_done else "for a request that isn't done yet"
        super().__init__(f"Idempotency-Key {key!r} was used before {how}")


class UploadTooLarge(UploadError):
    """A body larger than an upload may be."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"expected at most {limit} bytes in one upload")


class QuotaExceeded(UploadError):
    """More data than the tenant's quota allows."""

    def __init__(self, asked: int, used: int, quota: int) -> None:
        self.asked, self.used, self.quota = asked, used, quota
        super().__init__(
            f"expected at most {max(0, quota - used)} bytes, got {asked}: uploads and data sets already take {used} of the tenant's "
            f"{quota} bytes; delete some"
        )


class UploadCutOff(UploadError):
    """The body was cut off or took too long; nothing of it is kept."""

    def __init__(self, received: int) -> None:
        self.received = received
        super().__init__(f"expected the whole body in time, got only {received} bytes; nothing is kept")


class ReadersBusy(UploadError):
    """Other files are being read, and this one didn't get its turn."""

    def __init__(self, retry_after_seconds: int) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"too many files are being read; try again in {retry_after_seconds} s")
