"""Sentences of an answer that arrives in fragments, and the spans that they name."""

from __future__ import annotations

import random

from receiver.platform.explain.claims import SENTENCE_CHARACTERS_MAX, Part, Sentence, Sentences
from tests.support.cases import each_case

KNOWN = "00000000000000a1"
UNKNOWN = "00000000000000b2"


def sentences_of(text: str, cuts: list[int] | None = None) -> list[Sentence]:
    """Return the sentences of a text that arrives in fragments with these ends."""
    sentences, at = Sentences({KNOWN}), 0
    found: list[Sentence] = []
    for end in [*(cuts or []), len(text)]:
        found += sentences.add(text[at:end])
        at = end
    return [*found, *sentences.finish()]


def test_span_of_the_trace_becomes_a_reference() -> None:
    (sentence,) = sentences_of(f"The call failed [span:{KNOWN}].")

    assert sentence.parts == (Part("The call failed "), Part(KNOWN, is_span=True, is_known=True), Part("."))
    assert not sentence.is_refuted


@each_case("span_id", [UNKNOWN, "", "a1", "<b>", KNOWN + "0", "SELECT 1"])
def test_sentence_with_a_span_that_does_not_exist_is_refuted(span_id: str) -> None:
    first, second, third = sentences_of(f"One [span:{KNOWN}]. Two [span:{span_id}]. Three.")

    assert [first.is_refuted, second.is_refuted, third.is_refuted] == [False, True, False]


def test_reference_after_the_full_stop_belongs_to_the_sentence_before_it() -> None:
    first, second = sentences_of(f"It was slow. [span:{UNKNOWN}] [span:{KNOWN}] The rest is fine.")

    assert first.is_refuted
    assert not second.is_refuted
    assert second.parts[0].text == "The rest is fine."


def test_reference_in_capitals_is_known() -> None:
    assert not sentences_of(f"A [span:{KNOWN.upper()}].")[0].is_refuted


def test_fragments_do_not_change_the_sentences() -> None:
    text = f'A 1.5 ms call [span:{KNOWN}] failed! Why? [span:{UNKNOWN}] "Because." it\nended. [span:x\n] z'
    expected = sentences_of(text)
    rng = random.Random(15)

    for _ in range(200):
        cuts = sorted(rng.sample(range(len(text)), 6))
        assert sentences_of(text, cuts) == expected, cuts
    shown = "".join(
        f"[span:{part.text}]" if part.is_span else part.text for each in expected for part in each.parts
    )
    assert shown == text


def test_sentence_without_an_end_is_shown_in_pieces() -> None:
    found = sentences_of("x" * (SENTENCE_CHARACTERS_MAX + 5))

    assert [len(sentence.parts[0].text) for sentence in found] == [SENTENCE_CHARACTERS_MAX, 5]
