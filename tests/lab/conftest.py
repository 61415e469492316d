"""Each module has a machine of its own, as the integration tests have."""

from tests.integration.conftest import machine

__all__ = ["machine"]
