"""The tokens of every test model: one for each byte, the special ones, and a script's pieces."""

from collections.abc import Iterator
from dataclasses import dataclass

from gguf import TokenType

EOS_TEXT = "<|im_end|>"
START_TEXT = "<|im_start|>"
EOS_ID = 256  # after the bytes
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Token:
    text: str
    kind: TokenType


def prompt_tokens() -> list[Token]:
    """The tokens of every model: 256 bytes (id = byte), then EOS and the start of a message."""
    return [
        *(Token(letter, TokenType.NORMAL) for letter in _BYTE_LETTERS),
        Token(EOS_TEXT, TokenType.CONTROL),
        Token(START_TEXT, TokenType.CONTROL),
    ]


def _byte_letters() -> str:
    """The letter for each byte in GPT-2 vocabularies: itself if visible, else one from U+0100."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    invisible = [byte for byte in range(256) if byte not in visible]
    return "".join(chr(b if b in visible else 256 + invisible.index(b)) for b in range(256))


_BYTE_LETTERS = _byte_letters()
_OPENING_BRACKETS = frozenset("<[")


def pieces(data: bytes, piece_bytes: int, taken: set[str]) -> Iterator[Token]:
    """Cut `data` into tokens whose texts are not yet `taken`, and take them.

    A duplicate text aborts the loader. Pieces of several bytes are out of reach of a prompt because
    the vocabulary has no merges for them. When every length is taken, a BYTE token says the byte:
    llama.cpp reads no more than the two hex digits of its text, so a suffix makes it unique.
    So are brackets said, since a piece like `</s>` or `[EOT]` would end the answer: llama.cpp
    knows such tokens by their text.
    """
    at = 0
    while at < len(data):
        for size in range(min(piece_bytes, len(data) - at), 1, -1):
            text = "".join(_BYTE_LETTERS[byte] for byte in data[at : at + size])
            if text not in taken and not _OPENING_BRACKETS & set(text):
                token = Token(text, TokenType.NORMAL)
                break
        else:
            size = 1
            token = Token(f"<0x{data[at]:02X}>~{len(taken)}", TokenType.BYTE)
        taken.add(token.text)
        yield token
        at += size
