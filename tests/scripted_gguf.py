"""The test models by their first names; see `tests.models`."""

from tests.models.form import Architecture
from tests.models.noise import write_random_gguf
from tests.models.scripted import write_scripted_draft_gguf, write_scripted_gguf
from tests.models.vocabulary import CHAT_TEMPLATE, EOS_TEXT, START_TEXT

__all__ = [
    "CHAT_TEMPLATE",
    "EOS_TEXT",
    "START_TEXT",
    "Architecture",
    "write_random_gguf",
    "write_scripted_draft_gguf",
    "write_scripted_gguf",
]
