from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreword.kv.identity import TokenChain, token_key
from foreword.kv.radix import Node, RadixTree, common_tokens

ids = st.lists(st.one_of(st.integers(0, 2), st.sampled_from([255, 256, 2**31, 2**32 - 1])))


@given(ids, ids)
def test_common_tokens_are_counted(one: list[int], other: list[int]) -> None:
    common = 0
    for left, right in zip(one, other):  # noqa: B905  (the shorter one decides)
        if left != right:
            break
        common += 1
    assert common_tokens(token_key(one), token_key(other)) == common


@given(ids, ids)
def test_keys_sort_as_their_tokens_do(one: list[int], other: list[int]) -> None:
    assert (token_key(one) < token_key(other)) == (one < other)


@given(st.lists(ids, unique_by=tuple, max_size=30), ids)
def test_the_closest_child_shares_most(edges: list[list[int]], wanted: list[int]) -> None:
    node = Node(b"", None, -1)
    for block, edge in enumerate(edges):
        node.attach(Node(token_key(edge), node, block))
    found, shared = node.closest(token_key(wanted))
    assert shared == max(
        (common_tokens(c.key, token_key(wanted)) for c in node.children), default=0
    )
    assert (found is None) == (shared == 0)
    for edge in edges:
        child = node.child(token_key(edge))
        assert child is not None
        node.detach(child)
        assert node.child(token_key(edge)) is None
    assert not node.children


def test_a_match_ends_inside_a_block() -> None:
    tree = RadixTree(block_size=16)
    chain = TokenChain(b"root", list(range(48)), 16)
    first = tree.insert(tree.root(b"root"), chain.key(0), 7)
    second = tree.insert(first, chain.key(1), 3)
    other = TokenChain(b"root", [*range(20), *range(100, 130)], 16)
    assert tree.match(other, 50) == ((first,), second, 4)
    assert tree.match(chain, 31) == ((first,), second, 15)  # as far as it may
    assert tree.match(chain, 48) == ((first, second), None, 0)


@pytest.mark.parametrize("num_removed", [0, 1, 3])
def test_a_match_goes_on_from_what_is_still_there(num_removed: int) -> None:
    tree = RadixTree(block_size=16)
    chain = TokenChain(b"root", list(range(64)), 16)
    nodes: list[Node] = []
    for block in range(3):
        parent = nodes[-1] if nodes else tree.root(b"root")
        nodes.append(tree.insert(parent, chain.key(block), block))
    known = tree.match(chain, 64).nodes
    assert known == tuple(nodes)
    for _ in range(num_removed):
        tree.remove(nodes.pop())
    assert tree.match(chain, 64, known) == (tuple(nodes), None, 0)
    parent = nodes[-1] if nodes else tree.root(b"root")
    nodes.append(tree.insert(parent, chain.key(len(nodes)), len(nodes)))  # the same, made anew
    assert tree.match(chain, 64, known) == (tuple(nodes), None, 0)
    assert tree.match(chain, 15, known) == ((), nodes[0], 15)


def test_roots_share_nothing_and_leave_nothing() -> None:
    tree = RadixTree(block_size=16)
    chain = TokenChain(b"one", list(range(16)), 16)
    node = tree.insert(tree.root(b"one"), chain.key(0), 0)
    assert tree.match(TokenChain(b"two", list(range(16)), 16), 16).nodes == ()
    tree.remove(node)
    assert len(tree) == 0
    assert not tree._roots


def test_equal_tokens_are_there_once() -> None:
    tree = RadixTree(block_size=16)
    chain = TokenChain(b"root", list(range(16)), 16)
    node = tree.insert(tree.root(b"root"), chain.key(0), 5)
    assert tree.insert(tree.root(b"root"), chain.key(0), 6) is node
    assert node.block == 5
    assert len(tree) == 1


@pytest.mark.parametrize("shorter", [1, 15])
def test_ends_of_sequences_are_told_from_their_continuation(shorter: int) -> None:
    root = Node(b"", None, -1)
    tokens = list(range(16))
    end = Node(token_key(tokens[:shorter]), root, 0)
    root.attach(end)
    assert root.begun_by(token_key(tokens)) is end
    assert root.begins(token_key(tokens[:shorter])) is end
    assert root.begins(token_key(tokens)) is None
    assert root.begun_by(token_key([9, *tokens])) is None
