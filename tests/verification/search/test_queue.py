from hypothesis import given
from hypothesis import strategies as st

from steadynet.verification.search.subproblem import Queue, Split, Subproblem


def explore(depth: int, capacity: int, owners: int) -> int:
    """The most subproblems that are ever open while full binary trees of this depth are searched."""
    queue, most = Queue(capacity), 0
    queue.push(Subproblem(owner, 0, -100.0) for owner in range(owners))
    while len(queue):
        for parent in queue.pop(4):
            if len(parent.splits) < depth:
                better = parent.lower + 1.0  # a deeper bound is a better one: worst first is breadth first
                queue.push(parent.child(Split(1, len(parent.splits), sign), better) for sign in (1, -1))
        most = max(most, len(queue))
    return most


def test_past_its_capacity_a_queue_hardly_grows():
    assert explore(12, capacity=10**9, owners=3) > 3_000
    assert explore(12, capacity=50, owners=3) < 50 + 3 * 2 * (12 + 4)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 0)), max_size=40), st.integers(1, 30))
def test_every_subproblem_comes_out_once_in_turns_worst_first(entries, capacity):
    queue = Queue(capacity=10**9)
    pushed = [Subproblem(owner, index, lower) for index, (owner, lower) in enumerate(entries)]
    queue.push(pushed)
    popped = []
    while len(queue):
        popped += queue.pop(capacity)
    assert sorted(entry.margin for entry in popped) == sorted(entry.margin for entry in pushed)
    for owner in range(4):
        lower = [entry.lower for entry in popped if entry.owner == owner]
        assert lower == sorted(lower)


def test_some_properties_take_turns_and_the_others_wait():
    queue = Queue(capacity=100)
    queue.push(Subproblem(owner, 0, -1.0) for owner in (0, 1, 1, 2))
    assert {entry.owner for entry in queue.pop(10, among={0, 1})} == {0, 1}
    assert queue.pop(10, among={0, 1}) == []
    assert queue.pop(10, limit=0, among={2}) == []
    assert [queue.open_of(owner) for owner in (0, 1, 2)] == [0, 0, 1]


def test_a_dropped_property_or_margin_is_forgotten():
    queue = Queue(capacity=100)
    queue.push([Subproblem(0, 0, -1.0), Subproblem(0, 1, -2.0), Subproblem(1, 0, -3.0)])
    queue.drop(0, margin=1)
    assert len(queue) == 2
    queue.drop(0)
    assert queue.owners() == {1}
