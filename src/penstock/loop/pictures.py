"""Pictures of an environment, small enough to send."""

import io
from typing import Any

from penstock.errors import ConfigError
from penstock.model.codec import Array

MAX_WIDTH = 480
MAX_HEIGHT = 480
JPEG_QUALITY = 80


def jpeg(frame: Array) -> tuple[bytes, int, int]:
    """A frame [height, width, 3] as JPEG, no larger than it may be shown; with its width and height."""
    picture = image_module().fromarray(frame)
    picture.thumbnail((MAX_WIDTH, MAX_HEIGHT))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue(), picture.width, picture.height


def image_module() -> Any:
    """Pillow; raise ConfigError where it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError("moving pictures need Pillow: pip install 'penstock[play]'") from error
    return Image
