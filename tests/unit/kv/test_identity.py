from __future__ import annotations

import itertools

import pytest

from foreword.kv.identity import TokenChain, block_digests, root_digest, salted, token_key

# The same in every process and on every machine: computed once, written down here. A change of
# these values makes every block that another worker or a disk tier holds unreachable.
ROOT = "8fde84d6f04a7d809ae4476bac07c141b8c3c8ba5bcf3b3d606adc7b09592e74"
FIRST = "6916f39b94a83f708b59af0c0008def24ebcb803bdd3897530493a9323e51b25"
SECOND = "d45973c80f5e07738840925bf9418391f43cb0aa55b6354ed70ceda360469e89"


def test_identities_are_the_same_everywhere() -> None:
    root = root_digest({"model": b"\x01\x02", "arithmetic": b"float32"})
    chain = TokenChain(root, list(range(40)), block_size=16)
    assert root.hex() == ROOT
    assert chain.digest(0).hex() == FIRST
    assert chain.digest(1).hex() == SECOND


def test_roots_have_no_two_readings() -> None:
    parts = [
        {},
        {"adapter": b"abc"},
        {"salt": b"abc"},
        {"adapter": b"ab", "salt": b"c"},
        {"adapter": b"abc", "salt": b""},
        {"adapter": b"", "salt": b"abc"},
        {"adaptersalt": b"abc"},
        {"a": b"daptersaltabc"},
    ]
    assert len({root_digest(part) for part in parts}) == len(parts)


def test_roots_do_not_depend_on_order() -> None:
    parts = [("adapter", b"x"), ("model", b"y"), ("salt", b"z")]
    assert len({root_digest(dict(order)) for order in itertools.permutations(parts)}) == 1


def test_a_block_is_named_by_all_that_comes_before_it() -> None:
    digests = {
        block_digests(parent, token_key(tokens), 4 * len(tokens))[0]
        for parent in (b"a" * 32, b"b" * 32)
        for tokens in ([1, 2], [2, 1], [1], [1, 2, 0], [258])
    }
    assert len(digests) == 10


def test_a_chain_grows_with_its_tokens_and_forks() -> None:
    tokens = list(range(20))
    chain = TokenChain(b"root", tokens, block_size=16)
    first = chain.digest(0)
    other_tokens = list(tokens)
    other = chain.fork(other_tokens)
    tokens += range(20, 32)
    other_tokens += range(120, 132)
    assert [first, chain.digest(1)] == block_digests(b"root", token_key(tokens), 64)
    assert [other.digest(0), other.digest(1)] == block_digests(b"root", token_key(other_tokens), 64)


@pytest.mark.parametrize("token_id", [-1, 2**32, 2**64])
def test_ids_that_do_not_fit_are_errors(token_id: int) -> None:
    with pytest.raises(OverflowError):
        token_key([token_id])


def test_a_salt_makes_another_root() -> None:
    root = root_digest({"model": b"m"})
    assert salted(root, "") == root
    assert len({root, salted(root, "a"), salted(root, "b"), salted(root, "ab")}) == 4


def test_keys_are_the_tokens_of_blocks() -> None:
    chain = TokenChain(b"root", list(range(40)), block_size=16)
    assert chain.key(1) == token_key(list(range(16, 32))) == chain.span(16, 32)
    assert chain.span(30, 40) == token_key(list(range(30, 40)))
