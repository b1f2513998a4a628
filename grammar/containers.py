"""Arrays and objects: the two nodes that push frames.

In every style but ``flexible`` the gaps are known texts, so punctuation, gaps and the quotes and
colons of keys are fused into single terminals (``,\\n  "name": ``): fewer states, and long forced
runs. ``flexible`` spells the same out with gap terminals between.

A frame's ``place`` is ``number * PHASES + phase``; what the number means stands at each phase.
"""

from __future__ import annotations

from collections.abc import Sequence

from grammar.content import Content
from grammar.nodes import Closure, Context, Node, Stack

PHASES = 8
VALUE_DONE = 0  # number = index of the next property or item
KEY_DONE = 1  # the label says which property
EXTRA_KEY_DONE = 2  # number = the class of the key
VALUE = 3  # number = rule of the value to come
OPENED = 4  # flexible only: after the opening bracket and its gap
BEFORE_NEXT = 5  # flexible only: after a value and its gap
AFTER_COMMA = 6  # flexible only, or before an array's next item
COLON = 7  # flexible only: between key and colon; number = 2 * rule


class ObjectNode(Node):
    """An object: declared properties in order, then others.

    Args:
        names: encoded names (between the quotes) of the declared properties that may occur.
        values: the rule of each one's value.
        required: for each, whether it must be there.
        extras: the classes of undeclared keys: (content of the key, rule of the value).
    """

    nests = 1

    def __init__(
        self,
        names: Sequence[bytes],
        values: Sequence[int],
        required: Sequence[bool],
        extras: Sequence[tuple[Content, int]],
    ) -> None:
        self.names = tuple(names)
        self.values = tuple(values)
        self.extras = tuple(extras)
        count = len(self.names)
        # until[i]: the first required property at or after i, or count where there is none
        until = [count] * (count + 1)
        for i in range(count - 1, -1, -1):
            until[i] = i if required[i] else until[i + 1]
        self.until = tuple(until)

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        style = stack.style
        if style.flexible:
            context.text(b"{", context.push(self, OPENED - PHASES, stack), out)
            return
        if self._may_close(0):
            context.text(b"{}", stack, out)
        self._keys(context, 0, b"{" + style.line(stack.depth + 1), stack, out)

    def _may_close(self, index: int) -> bool:
        return self.until[index] == len(self.names)

    def _keys(
        self, context: Context, index: int, before: bytes, stack: Stack, out: Closure
    ) -> None:
        """The keys that may come when properties before ``index`` are done or skipped."""
        workspace = context.workspace
        opening = before + b'"'
        closing = b'"' if stack.style.flexible else b'":' + stack.style.colon
        last = min(self.until[index], len(self.names) - 1)
        if index <= last:
            words = workspace.words(workspace.trie(self.names), opening, closing)
            start = words.start(index, last)
            context.leaf(words, start, context.push(self, KEY_DONE, stack), out)
        if not self._may_close(index):
            return
        for i, (content, _) in enumerate(self.extras):
            strings = workspace.strings(opening, closing)
            after = context.push(self, i * PHASES + EXTRA_KEY_DONE, stack)
            context.leaf(strings, strings.start(content), after, out)

    def resume(self, context: Context, place: int, stack: Stack, label: int, out: Closure) -> None:
        number, phase = divmod(place, PHASES)
        if phase == VALUE_DONE:
            self._after_value(context, number, stack, out)
        elif phase == KEY_DONE:
            self._value(context, label + 1, self.values[label], stack, out)
        elif phase == EXTRA_KEY_DONE:
            self._value(context, len(self.names), self.extras[number][1], stack, out)
        elif phase == VALUE:
            context.rules[number].expand(context, stack, out)
        else:
            self._resume_flexible(context, number, phase, stack, out)

    def _after_value(self, context: Context, index: int, stack: Stack, out: Closure) -> None:
        style = stack.style
        if style.flexible:
            context.blank(context.push(self, index * PHASES + BEFORE_NEXT, stack), out)
            return
        if self._may_close(index):
            context.text(style.line(stack.depth) + b"}", stack, out)
        self._keys(context, index, b"," + style.after_comma(stack.depth + 1), stack, out)

    def _value(self, context: Context, index: int, rule: int, stack: Stack, out: Closure) -> None:
        after = context.push(self, index * PHASES + VALUE_DONE, stack)
        if stack.style.flexible:
            context.blank(context.push(self, rule * 2 * PHASES + COLON, after), out)
        else:
            context.rules[rule].expand(context, after, out)

    def _resume_flexible(
        self, context: Context, number: int, phase: int, stack: Stack, out: Closure
    ) -> None:
        if phase == OPENED:
            if number < 0:  # the bracket only; its gap comes now
                context.blank(context.push(self, OPENED, stack), out)
                return
            if self._may_close(0):
                context.text(b"}", stack, out)
            self._keys(context, 0, b"", stack, out)
        elif phase == BEFORE_NEXT:
            if self._may_close(number):
                context.text(b"}", stack, out)
            if number < len(self.names) or self.extras:
                comma = context.push(self, number * 2 * PHASES + AFTER_COMMA, stack)
                context.text(b",", comma, out)
        elif phase == AFTER_COMMA:
            index, gap_done = divmod(number, 2)
            if gap_done:
                self._keys(context, index, b"", stack, out)
            else:
                context.blank(context.push(self, (number + 1) * PHASES + AFTER_COMMA, stack), out)
        else:
            rule, colon_done = divmod(number, 2)
            if colon_done:
                context.blank(context.push(self, rule * PHASES + VALUE, stack), out)
            else:
                colon = context.push(self, (number + 1) * PHASES + COLON, stack)
                context.text(b":", colon, out)


class ArrayNode(Node):
    """An array: ``prefix`` rules item by item, then ``rest`` for all others.

    Args:
        prefix: rules of the first items.
        rest: the rule of every later item, or None where there may be none.
        least, most: bounds on the number of items; ``most`` None = no limit.
    """

    nests = 1

    def __init__(
        self, prefix: Sequence[int], rest: int | None, least: int, most: int | None
    ) -> None:
        self.prefix = tuple(prefix)
        self.rest = rest
        self.least = least
        self.most = most
        # Above this many items nothing more can change, so counting stops.
        self.enough = max(least, len(self.prefix)) if most is None else most

    def _rule(self, index: int) -> int | None:
        """The rule of item ``index``, or None where there can't be one."""
        if self.most is not None and index >= self.most:
            return None
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        style = stack.style
        if style.flexible:
            context.text(b"[", context.push(self, OPENED - PHASES, stack), out)
            return
        if self.least == 0:
            context.text(b"[]", stack, out)
        if self._rule(0) is not None:
            opened = context.push(self, AFTER_COMMA, stack)
            context.text(b"[" + style.line(stack.depth + 1), opened, out)

    def resume(self, context: Context, place: int, stack: Stack, label: int, out: Closure) -> None:
        number, phase = divmod(place, PHASES)
        style = stack.style
        if phase == AFTER_COMMA:
            rule = self._rule(number)
            assert rule is not None
            count = min(number + 1, self.enough)
            after = context.push(self, count * PHASES + VALUE_DONE, stack)
            context.rules[rule].expand(context, after, out)
        elif phase == VALUE_DONE and not style.flexible:
            if number >= self.least:
                context.text(style.line(stack.depth) + b"]", stack, out)
            if self._rule(number) is not None:
                comma = context.push(self, number * PHASES + AFTER_COMMA, stack)
                context.text(b"," + style.after_comma(stack.depth + 1), comma, out)
        elif phase == VALUE_DONE:
            context.blank(context.push(self, number * PHASES + BEFORE_NEXT, stack), out)
        elif phase == BEFORE_NEXT:
            if number >= self.least:
                context.text(b"]", stack, out)
            if self._rule(number) is not None:
                comma = context.push(self, number * PHASES + VALUE, stack)
                context.text(b",", comma, out)
        elif phase == VALUE:  # flexible: after the comma, its gap, then the item
            context.blank(context.push(self, number * PHASES + AFTER_COMMA, stack), out)
        else:
            self._opened_flexible(context, number, stack, out)

    def _opened_flexible(self, context: Context, number: int, stack: Stack, out: Closure) -> None:
        if number < 0:
            context.blank(context.push(self, OPENED, stack), out)
            return
        if self.least == 0:
            context.text(b"]", stack, out)
        rule = self._rule(0)
        if rule is not None:
            after = context.push(self, min(1, self.enough) * PHASES + VALUE_DONE, stack)
            context.rules[rule].expand(context, after, out)
