"""The tokenizer's interface, on the real vocabularies."""

from __future__ import annotations

import threading
import time

import pytest

from foreword.text.tokenizer import Tokenizer
from foreword.weights.gguf import GGUFFile


def test_what_the_files_say(smollm2: Tokenizer, gemma: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.bos_token_id, smollm2.add_bos) == (49_152, 1, False)
    assert (gemma.vocab_size, gemma.bos_token_id, gemma.add_bos) == (262_144, 2, True)
    assert smollm2.eos_token_ids == {0, 2}  # <|endoftext|>, <|im_end|>
    assert gemma.eos_token_ids == {1, 106}  # <eos>, <end_of_turn>
    assert smollm2.chat_template is not None
    assert gemma.chat_template is None


def test_bos_is_added_as_asked_and_never_taken_away(gemma: Tokenizer, smollm2: Tokenizer) -> None:
    hello = gemma.encode("Hello", add_bos=False)
    assert gemma.encode("Hello") == gemma.encode("Hello", add_bos=True) == [2, *hello]
    # A user who writes it gets it twice: nothing is dropped behind their back.
    assert gemma.encode("<bos>Hello", parse_special=True) == [2, 2, *hello]
    assert smollm2.encode("Hello", add_bos=True) == [1, *smollm2.encode("Hello")]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc00\ud800", "x\ud83d", "é\ud800\n"])
def test_lone_surrogates_count_as_replacement_characters(
    smollm2: Tokenizer, gemma: Tokenizer, text: str
) -> None:
    clean = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    for tokenizer in (smollm2, gemma):
        assert tokenizer.encode(text) == tokenizer.encode(clean)


def test_surrogate_pairs_are_the_character_that_they_spell(gemma: Tokenizer) -> None:
    assert gemma.encode("\ud83d\ude00") == gemma.encode("😀")


def test_gemmas_html_tag_is_neither_an_end_nor_special(gemma: Tokenizer) -> None:
    tag = gemma.encode("</s>", add_bos=False, parse_special=True)
    assert len(tag) == 1
    assert not gemma.eos_token_ids & set(tag)
    assert gemma.decode(tag) == gemma.decode(gemma.encode("</s>")) == "</s>"


def test_single_tokens(smollm2: Tokenizer, gemma: Tokenizer) -> None:
    assert smollm2.token_bytes(2) == b"<|im_end|>"
    assert smollm2.token_text(smollm2.encode(" the")[0]) == " the"
    assert gemma.token_bytes(238 + 0xE9) == b"\xe9"  # <0xE9>
    assert gemma.token_text(238 + 0xE9) == "\ufffd"
    for token_id in (-1, smollm2.vocab_size, 2**40):
        with pytest.raises(IndexError):
            smollm2.token_bytes(token_id)


def test_special_tokens_are_left_out_of_text_unless_asked_for(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("<|im_start|>user\nHi<|im_end|>", parse_special=True)
    assert smollm2.decode(ids) == "user\nHi"
    assert smollm2.decode(ids, skip_special=False) == "<|im_start|>user\nHi<|im_end|>"


@pytest.mark.parametrize(
    "unit", ["word ", "a", " ", "\n", "<", "\n \n", "漢", "<|im_start|>", "'s"]
)
def test_a_megabyte_takes_linear_time(smollm2: Tokenizer, gemma: Tokenizer, unit: str) -> None:
    text = unit * (1_000_000 // len(unit.encode()))
    for tokenizer in (smollm2, gemma):
        began = time.thread_time()
        ids = tokenizer.encode(text, add_bos=False, parse_special=True)
        assert time.thread_time() - began < 5  # mostly 0.1 to 0.5
        assert len(ids) > 1


def test_encoding_lets_other_threads_run(gemma: Tokenizer) -> None:
    text = " ".join(map(str, range(400_000)))  # nothing in it comes twice
    thread = threading.Thread(target=gemma.encode, args=(text,))
    thread.start()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 4  # hundreds; with the GIL held, the first, and one at the end


def test_loading_is_fast(smollm2_path, gemma_path) -> None:  # type: ignore[no-untyped-def]
    for path, limit in ((smollm2_path, 0.3), (gemma_path, 0.6)):  # idle: 0.02 and 0.03
        file = GGUFFile.open(path)
        began = time.thread_time()
        Tokenizer.load(file)
        assert time.thread_time() - began < limit
