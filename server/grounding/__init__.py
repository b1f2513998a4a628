"""Grounding: is what an answer says stated in its source?

    rules(schema, option)            which values are checked, and how
    check(value, rules, source)      the values that the source does not state, with reasons
    nulled(value, ungrounded, schema)  the same value with null where nothing was stated

Pure functions over JSON values and text: no model, no HTTP. A grammar can make an answer fit a
schema; whether it is true it can't know. That a value is *stated* is weaker than that it is true
(the right number may stand in the source for another thing), but what is not stated was made up.

Read next: `rules.py` for what can be asked, `checks.py` for how it is answered.
"""

from server.grounding.checks import Ungrounded, check
from server.grounding.nulls import nulled
from server.grounding.rules import GroundingError, Rule, rules
from server.grounding.source import Source

__all__ = ["GroundingError", "Rule", "Source", "Ungrounded", "check", "nulled", "rules"]
