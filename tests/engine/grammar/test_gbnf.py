"""Grammars that clients write: llama.cpp must survive each one that passes the check."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veriloop_tui.engine.decoding.llama import Vocabulary
from veriloop_tui.engine.decoding.native import api
from veriloop_tui.engine.grammar.gbnf import char_class, check, literal
from veriloop_tui.errors import EngineRefused

ARITHMETIC = """
# sums
root  ::= (sum "=" ws term "\\n")+
sum   ::= term ([-+*/] term)*   # left to right
term  ::= [0-9]{1,3} ws | "(" ws sum ")" ws |
          <[5]> | !<[6]> .
ws    ::= [ \\t\\n\\]]*
"""
CHAIN = "\n".join(["root ::= r0", *(f"r{n} ::= r{n + 1}" for n in range(4_900)), 'r4900 ::= "a"'])


def compiles(vocabulary: Vocabulary, grammar: str) -> bool:
    sampler = api.llama_sampler_init_grammar(vocabulary.handle, grammar.encode(), b"root")
    if sampler:
        api.llama_sampler_free(sampler)
    return bool(sampler)


@pytest.mark.parametrize("grammar", [ARITHMETIC, CHAIN, 'root ::= "a"?', "root::=[a-z]{0,2000}"])
def test_a_usual_grammar_passes_and_compiles(vocabulary: Vocabulary, grammar: str) -> None:
    check(grammar)

    assert compiles(vocabulary, grammar)


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('root ::= "a"{5,2}', "maximum is below"),
        ('root ::= b root "x" | "y"\nb ::= c\nc ::= ""', "root begins with itself"),
        ('root ::= ("a"? root)? "b"', "root begins with itself"),
        ('root ::= a\na ::= b\nb ::= a "x"', "begins with itself"),
        ("root ::= " + "(" * 30_000 + '"a"' + ")" * 30_000, "too deep"),
        ('root ::= "' + "a" * 60_000 + '"{2000}', "too large"),
        ('root ::= (((b? ("" c+ | c? a{100}){100}){100}))\na ::= "x"*\nb ::= "y"\nc ::= a', "ways"),
        ('root ::= "a"{3000}', "more than 2000"),
        ('root ::= "a"{99999999999}', "cannot be read"),
        ('a ::= "b"', "no rule named root"),
        ("root ::= b", "b is not defined"),
        ('root ::= ("a"', "not closed"),
        ('root ::= ("a"\nb ::= "c"', "not closed"),
        ('root ::= "a")', "do not match"),
        ("root ::= *", "nothing before"),
        ('::= "a"', "no name"),
        ('"a"', "does not begin"),
        ('root ::= "a', "cannot be read"),
        ('root ::= "a\0"', "control characters"),
        ('root ::= "\x1b[2J"', "control characters"),
        ("", "no rule named root"),
        ("# " + "x" * 300_000, "longer than"),
    ],
)
def test_a_grammar_that_would_harm_the_engine_is_refused(grammar: str, reason: str) -> None:
    with pytest.raises(EngineRefused) as caught:
        check(grammar)

    assert caught.value.status == 400
    assert reason in caught.value.message


PARTS = st.sampled_from(
    (
        *('"a"', '"ab"', "[a-z]", "[^a]", ".", "root", "a", "b", "(", ")", "|", "*", "+", "?"),
        *("{2}", "{0,3}", "{100}", "{2,}", '""', "\na ::=", "\nb ::=", "# x\n"),
    )
)


@given(st.lists(PARTS, max_size=25))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_passes_the_check_is_taken_or_refused_by_llama_cpp(
    vocabulary: Vocabulary, parts: list[str]
) -> None:
    grammar = "root ::= " + " ".join(parts)
    with contextlib.suppress(EngineRefused):
        check(grammar)
        compiles(vocabulary, grammar)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_text_can_be_a_literal_or_a_class(vocabulary: Vocabulary, text: str) -> None:
    grammar = f"root ::= {literal(text)} {char_class([(ord(one), ord(one)) for one in text])}"

    check(grammar)
    assert compiles(vocabulary, grammar)
