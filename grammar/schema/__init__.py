"""The JSON Schema front end: a schema in, rules of ``grammar.nodes`` out.

Reading order: ``document`` (finding subschemas), ``keywords`` and ``places`` (what each keyword is
to us, and where its subschemas stand), ``flatten`` (references and combinators away) with
``complement``, ``search`` (products of unions), ``glance``, ``facts`` and ``alike`` (what is
certain without multiplying anything out), ``merge`` and ``objects`` (one typed description from
many schema objects), ``languages`` and ``bounds`` (strings and numbers), ``values`` (constants
against schemas), ``compile`` (rules, pruning, nodes). ``grammar/README.md`` says what each keyword
is.
"""
