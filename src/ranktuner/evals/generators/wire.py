"""JSON over HTTP with the standard library: no client that this package would need is installed by everyone."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class UnreachableError(Exception):
    """No reply: refused, timed out, or cut off in the middle."""


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    text: str
    retry_after: float | None = None
    """Seconds that the server asks to be left alone."""

    def json(self) -> Any:
        """Return the body as JSON, None if it is not."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    def brief(self) -> str:
        """Return status and the beginning of the body, for messages."""
        text = " ".join(self.text.split())
        return f"{self.status} {text[:300]!r}"


def get(url: str, headers: Mapping[str, str], *, timeout: float) -> Reply:
    """Send a GET."""
    return _send(urllib.request.Request(url, headers=dict(headers)), timeout)


def post(url: str, body: Mapping[str, Any], headers: Mapping[str, str], *, timeout: float) -> Reply:
    """Send a POST with a JSON body."""
    data = json.dumps(body).encode()
    return _send(urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}), timeout)


def _send(request: urllib.request.Request, timeout: float) -> Reply:
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return Reply(response.status, response.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        wait = error.headers.get("Retry-After", "") if error.headers else ""
        return Reply(error.code, _body(error), min(float(wait), 120.0) if wait.isdigit() else None)
    except TimeoutError as error:
        raise UnreachableError(f"no answer within {timeout:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        words = f"no answer within {timeout:g} s" if isinstance(reason, TimeoutError) else f"no answer ({reason})"
        raise UnreachableError(words) from error


def _body(error: urllib.error.HTTPError) -> str:
    try:
        return error.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""
