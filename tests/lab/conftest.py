"""Each module has a machine of its own, as the integration tests have."""

from tests.integration.conftest import machine, models_of_its_own

__all__ = ["machine", "models_of_its_own"]
