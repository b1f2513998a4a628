"""The JSON Schema front end: a schema in, rules of ``grammar.nodes`` out.

Reading order: ``document`` (finding subschemas), ``keywords`` (what each keyword is to us),
``flatten`` (references and combinators away), ``merge`` (one typed description from many),
``values`` (constants against schemas), ``compile`` (rules, pruning, nodes).
"""
