"""The policy of repair, step by step: what comes next, what the model is told, where it ends."""

from __future__ import annotations

import pytest

from server.repair import Accept, GiveUp, Reason, RepairLoop, Retry, canonical, feedback

TRUNCATED = (Reason("truncated", "the answer was cut off at 8 tokens"),)
WRONG = (Reason("ungrounded", "41: not stated", "/age", {"value": 41}),)
INVALID = (Reason("invalid", "41 is odd", "/age", {"keyword": "multipleOf"}),)


def loop(max_attempts: int = 4, max_tokens: int | None = 8, most: int | None = None) -> RepairLoop:
    return RepairLoop(max_attempts=max_attempts, max_tokens=max_tokens, most_tokens=most)


def test_a_good_answer_is_accepted() -> None:
    each = loop()
    assert (each.number, each.budget) == (1, 8)
    assert each.next("{}", (), tokens=2, room=100) == Accept()
    (attempt,) = each.attempts
    assert attempt.as_dict() == {
        "attempt": 1,
        "outcome": "accepted",
        "max_tokens": 8,
        "completion_tokens": 2,
        "content": "{}",
        "reasons": [],
    }


def test_a_truncated_answer_gets_twice_the_budget_and_the_same_prompt() -> None:
    each = loop()
    assert each.next('{"a', TRUNCATED, tokens=8, room=100) == Retry(16, ())
    assert (each.number, each.budget) == (2, 16)
    assert each.next('{"a', TRUNCATED, tokens=16, room=100) == Retry(32, ())
    assert [attempt.max_tokens for attempt in each.attempts] == [8, 16]
    assert {attempt.outcome for attempt in each.attempts} == {"truncated"}


@pytest.mark.parametrize(
    ("max_tokens", "most", "room", "budgets"),
    [
        (8, None, 30, [8, 16, 30]),
        (8, 20, 100, [8, 16, 20]),
        (8, 100, 12, [8, 12]),
        (8, 8, 100, [8]),
        (8, None, 8, [8]),
        (20, None, 12, [20]),
        (None, None, 50, [None]),
    ],
)
def test_a_budget_grows_to_what_the_context_and_the_request_allow(
    max_tokens: int | None, most: int | None, room: int, budgets: list[int | None]
) -> None:
    each = loop(10, max_tokens, most)
    found = []
    while True:
        found.append(each.budget)
        step = each.next("", TRUNCATED, tokens=8, room=room)
        if isinstance(step, GiveUp):
            break
    assert found == budgets
    assert step == GiveUp("budget_exhausted")
    assert "can't have a larger budget" in step.message


@pytest.mark.parametrize(("reasons", "outcome"), [(WRONG, "ungrounded"), (INVALID, "invalid")])
def test_a_rejected_answer_goes_back_with_its_reasons(
    reasons: tuple[Reason, ...], outcome: str
) -> None:
    each = loop()
    step = each.next('{"age": 41}', reasons, tokens=5, room=100)
    assert step == Retry(
        8,
        (
            {"role": "assistant", "content": '{"age": 41}'},
            {
                "role": "user",
                "content": "This answer was rejected:\n"
                f"- /age: {reasons[0].message}\n"
                "Answer again, with what is wrong put right.",
            },
        ),
    )
    assert each.attempts[0].outcome == outcome


def test_all_rejected_answers_stay_in_the_prompt_and_budgets_stay_grown() -> None:
    each = loop()
    each.next("{", TRUNCATED, tokens=8, room=100)
    each.next('{"age": 41}', WRONG, tokens=9, room=100)
    step = each.next('{"age": 42}', WRONG, tokens=9, room=100)
    assert isinstance(step, Retry)
    assert step.max_tokens == 16
    assert [m["content"] for m in step.messages[::2]] == ['{"age": 41}', '{"age": 42}']
    assert [m["role"] for m in step.messages] == ["assistant", "user"] * 2


def test_an_answer_that_was_rejected_before_ends_the_loop() -> None:
    each = loop(10)
    each.next('{"name": "A", "age": 41}', WRONG, tokens=5, room=100)
    each.next('{"age": 42}', WRONG, tokens=5, room=100)
    step = each.next('{ "age": 41.0, "name": "\\u0041" }', WRONG, tokens=5, room=100)
    assert step == GiveUp("repeated_answer")
    last = each.attempts[-1]
    assert (last.outcome, last.repeats, last.number) == ("repeated", 1, 3)
    assert last.as_dict()["repeats"] == 1


def test_a_truncated_answer_is_no_rejected_one() -> None:
    each = loop()
    each.next("{", TRUNCATED, tokens=8, room=100)
    assert isinstance(each.next("{", TRUNCATED, tokens=8, room=100), Retry)


def test_an_accepted_answer_may_equal_a_rejected_one() -> None:
    """It passed; why it did not before is no reason to throw it away."""
    each = loop()
    each.next("{}", WRONG, tokens=1, room=9)
    assert each.next("{}", (), tokens=1, room=9) == Accept()


@pytest.mark.parametrize("reasons", [TRUNCATED, WRONG])
def test_the_attempts_are_counted(reasons: tuple[Reason, ...]) -> None:
    each = loop(3)
    steps = [each.next(f"{i}", reasons, tokens=1, room=100) for i in range(3)]
    assert [type(step) for step in steps] == [Retry, Retry, GiveUp]
    assert steps[-1] == GiveUp("attempts_exhausted")
    assert loop(1).next("", reasons, tokens=1, room=100) == GiveUp("attempts_exhausted")


def test_reasons_as_data() -> None:
    assert WRONG[0].as_dict() == {
        "type": "ungrounded",
        "pointer": "/age",
        "value": 41,
        "message": "41: not stated",
    }
    assert "pointer" not in TRUNCATED[0].as_dict()


def test_feedback_is_short() -> None:
    text = feedback([Reason("invalid", f"r{i}", f"/{i}") for i in range(14)])
    assert "- /9: r9" in text
    assert "- /10: r10" not in text
    assert "- and 4 more" in text
    assert "- it is wrong" in feedback([Reason("invalid", "it is wrong", "")])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a":1,"b":[true,null]}', '{ "b" : [true, null], "a": 1.0 }', True),
        ('"\\u00e9"', '"é"', True),
        ("1e2", "100", True),
        ("[1,2]", "[2,1]", False),
        ('"1"', "1", False),
        ("true", "1", False),
        ("{", "{", True),
        ("{", "{ ", False),
        ("[" * 5000, "[" * 5000, True),
    ],
)
def test_equal_values_are_equal_however_they_are_written(one: str, other: str, same: bool) -> None:
    assert (canonical(one) == canonical(other)) is same
