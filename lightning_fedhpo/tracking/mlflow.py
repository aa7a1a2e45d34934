"""Whether MLflow's server answers, found out in seconds: MLflow itself asks for a quarter of an hour."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request

ANSWER_SECONDS = 10.0
"""So long a server may take for its first answer."""


def check_server(address: str) -> None:
    """Raise where nothing answers at an address by HTTP. Any answer will do, also a refusal."""
    try:
        urllib.request.urlopen(address, timeout=ANSWER_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLError):  # whom to believe is a setting of MLflow's
            return
        told = f"no answer in {ANSWER_SECONDS:g} seconds" if isinstance(reason, TimeoutError) else reason
        raise ConnectionError(
            f"the MLflow server at {address} cannot be used ({told}): start it, or set `tracking_uri` to another "
            "address or a file such as sqlite:///mlflow.db."
        ) from error
