"""Small vision and text transformers."""

from .models.text import TextConfig, TextModel
from .models.vision import VisionModel

__all__ = ["TextConfig", "TextModel", "VisionModel"]
