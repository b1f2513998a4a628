"""Generation: one thread, many sequences, every token masked before anything else.

Reading order: `types.py` (what goes in and out), `errors.py`, `model.py` (what a language model
must do), `engine.py` (the front), `scheduler.py` (the step), `sequence.py` (one request in it),
`sampling.py` (the masked sampler), `text.py` (bytes to text); then the models, `llama.py` (the only
module that knows llama.cpp) and `toy.py`, and `loading.py`, which puts them together.
"""
