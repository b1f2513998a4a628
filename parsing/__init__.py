"""Response templates: a model's answer, whole or as it streams, is taken apart into a message.

    message = parse_response(text, template, prefix=prompt)

    parser = ResponseParser(template, prefix=prompt, tools=tools)
    show(parser.initial_events)
    for piece in pieces:
        show(parser.feed(piece))
    message, last = parser.finalize()

Nothing here reads from or writes to anything: text goes in, events and a message come out. Whoever
calls owns the network, the tokenizer and the template files.

Theory of operation
-------------------
A chat model writes one string: reasoning, answer and tool calls, set apart by delimiters of its
family. A template names them: each field has what opens it and what closes it, what its text is
(`content`), and the shape its value takes (`transform`). One field may do without an opener; it
gets whatever stands outside the others.

The text is only ever seen from the left. So the one hard question is which part of it is *decided*:
would more text change where the next delimiter stands? The rule that everything follows is that
a piece of text is handed out exactly when no continuation can make it part of a delimiter, and a
delimiter counts exactly when no continuation can change its match. What comes out is then the same
however the text was cut, by construction: it is what one would say who had seen it all.

1. `syntax` reads a delimiter's pattern into a tree, `measures` sizes it up, and `edges` rewrites it
   into a pattern that matches, at the end of the text, whatever could still become a match there,
   and marks it.
2. `delimiters` searches with it: found, or undecided from some place on. `machine` walks the text
   delimiter by delimiter, by two small tables, and emits steps: opened, text, closed.
3. At the end of the text the patterns as written decide the rest. A region whose close never came
   gets a second look (`recovery`): a forgotten close must not swallow what follows.
4. `parser` turns steps into events. A closed region's text becomes a value (`content`, `jsonlike`,
   `pycalls`), is shaped (`transform`) and typed (`tools`), and goes into the message (`message`). A
   region that can't be read is reported as malformed, and everything else goes on.

`template` checks and compiles descriptions, `library` reads the files that hold them and chooses
among them by a model's chat template. Read in the order of the numbers. README.md lists where this
differs on purpose from the reference implementation of the format.
"""

from __future__ import annotations

from parsing.errors import ResponseParseError, ResponseTemplateError
from parsing.library import Detection, TemplateFile, choose_template, load_template_file
from parsing.parser import Event, ResponseParser, parse_response
from parsing.template import ResponseTemplate, load_template

__all__ = [
    "Detection",
    "Event",
    "ResponseParseError",
    "ResponseParser",
    "ResponseTemplate",
    "ResponseTemplateError",
    "TemplateFile",
    "choose_template",
    "load_template",
    "load_template_file",
    "parse_response",
]
