"""Tests in the rooms of the package; `helpers*.py` is what they share."""

import pytest

pytest.register_assert_rewrite("tests.helpers", "tests.helpers_losses")
