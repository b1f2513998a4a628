"""The HTTP room: OpenAI's API over an `Engine`. Thin: validate, call, shape the answer.

Code map, in reading order: `app` (routes, start and end), `answering` (a generating request's way),
`chat` and `completions` (the two kinds of it), `running` (generations and disconnects),
`structured`, `answerformat` and `kept` (formats to grammars), `shapes` and `sse` (what goes out),
`models`, `formats`, `fields` and `validation` (what comes in), `errors` (the one place where
exceptions become envelopes), `runtime` (the loaded model), `middleware`, `keys`, `misc` and `docs`.

Invariant: no sampling and no grammar logic here.
"""
