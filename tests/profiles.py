"""What tests of importing share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpusim.common.errors import InputError
from gpusim.io.importing import import_profile


def written(path: Path, text: str) -> Path:
    """The file with that text in it."""
    path.write_text(text)
    return path


def refused(path: Path, **how: Any) -> str:
    """The one line with which a profile is refused."""
    with pytest.raises(InputError) as caught:
        import_profile(path, **how)
    assert str(caught.value).isprintable()
    return str(caught.value)
