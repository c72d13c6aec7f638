"""Isolation of tests from the AWS settings of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def forget_aws(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Removes the machine's environment variables and files for AWS, and disables its metadata service."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    patch.setenv("AWS_CONFIG_FILE", str(home / "config"))
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials"))
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
