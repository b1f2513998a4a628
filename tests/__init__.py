"""Tests; `grammar_support` and the like are shared between them."""
