"""Processing of responses on all wires: decoding, and the pause that the server requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lance_ns_async.transports.aws.failures import failure
from lance_ns_async.transports.responses import retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        *(({}, None), ({"retry-after": "7"}, 7.0), ({"retry-after": " 7 "}, 7.0), ({"retry-after": "soon"}, None)),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 +0900"}, 0.0),
        ({"retry-after": "Wednesday, 21-Oct-15 07:28:00 GMT"}, 0.0),
        *(({"x-amz-retry-after": "1500"}, 1.5), ({"x-amz-retry-after": "soon"}, None)),
        ({"retry-after": "2", "x-amz-retry-after": "1500"}, 2.0),
    ],
)
def test_requested_pauses(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_wait_until_date_is_read_for_aws_as_for_http() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    response: Any = {
        "Error": {"Code": "ThrottlingException"},
        "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {"retry-after": date}},
    }
    wait = failure(ClientError(response, "GetTable")).retry_after
    assert wait is not None and 3500 < wait <= 3600
