"""What can go wrong while a model is fetched.

    FetchError
    ├── NetworkError        no connection, or it was lost and couldn't be taken up again
    ├── NotFoundError       the server, index, wheel or path has no such file
    ├── AccessDeniedError   the file needs a login or an accepted licence
    ├── HashMismatchError   the file is not the one that was asked for; it has been removed
    ├── DiskFullError       no room for it
    └── NotGgufError        the file is not a GGUF model

Invariant: after any of these no partial or wrong file stands at the model's final place.

Read next: `server/fetch.py`.
"""

from __future__ import annotations


class FetchError(Exception):
    """A model can't be had; the message says which and why, in words for the operator."""


class NetworkError(FetchError):
    """No connection, or it was lost and couldn't be taken up again."""


class NotFoundError(FetchError):
    """The server, index, wheel or path has no such file."""


class AccessDeniedError(FetchError):
    """The file needs a login or an accepted licence."""


class HashMismatchError(FetchError):
    """The file's SHA-256 is not the expected one; the file has been removed."""


class DiskFullError(FetchError):
    """There is no room for the file."""


class NotGgufError(FetchError):
    """The file is not a GGUF model."""
