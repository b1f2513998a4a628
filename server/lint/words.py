"""The words by which the rules judge property names: English, Portuguese, Spanish, French, German.

A name is split where its case or punctuation changes (`sourceQuote`, `source_quote`), and its words
are compared without accents.

Read next: `rules.py`.
"""

from __future__ import annotations

import re
import unicodedata


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Names of what an answer should be derived from.
EVIDENCE = _words(
    """
    evidence quote quotes quotation citation citations excerpt snippet passage support reasoning
    reason reasons rationale explanation justification analysis thinking thoughts thought steps
    workings derivation basis grounds
    evidencia evidencias citacao citacoes trecho raciocinio motivo motivos justificativa
    explicacao analise fundamento passos
    cita citas fragmento razonamiento razon justificacion explicacion analisis pasos
    preuve citation extrait raisonnement raison justification explication analyse
    beleg zitat auszug begrundung erklarung herleitung
    """
)

#: Names of what is to be decided.
ANSWER = _words(
    """
    answer result verdict conclusion decision label category class classification score rating
    grade sentiment outcome final response status approved valid correct winner choice diagnosis
    priority severity is has should can
    resposta resultado veredito conclusao decisao rotulo categoria classificacao nota pontuacao
    sentimento aprovado valido correto
    respuesta veredicto conclusion decision etiqueta clasificacion puntuacion sentimiento aprobado
    reponse resultat verdict decision categorie note sentiment
    antwort ergebnis urteil entscheidung kategorie bewertung
    """
)

#: Words of enumerated values that leave a way out.
OTHER = _words(
    """
    other others unknown none neither na unspecified undetermined unclear unsure uncertain
    missing mixed misc miscellaneous any
    outro outra outros outras desconhecido desconhecida nenhum nenhuma indefinido
    otro otra otros otras desconocido desconocida ninguno ninguna indeterminado
    autre autres inconnu aucun
    andere anderes sonstige sonstiges unbekannt keine
    """
)
_OTHER_PHRASES = frozenset({"not applicable", "not stated", "not specified", "not found", "n a"})

#: Names that say nothing to a model.
VAGUE = _words(
    """
    data value values val info information item items field fields thing things stuff obj object
    objects foo bar baz tmp temp test misc param params arg args var attr attribute prop property
    key string str number num text content output result entry element payload body
    dado dados valor valores campo campos coisa item
    dato datos cosa
    """
)

_SPLIT = re.compile(r"[^a-zA-Z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_NUMBERED = re.compile(r"([a-z]+?)\d+")


def words(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case and without accents."""
    plain = unicodedata.normalize("NFKD", name)
    plain = "".join(character for character in plain if not unicodedata.combining(character))
    return tuple(part.lower() for part in _SPLIT.split(plain) if part)


def is_evidence(name: str) -> bool:
    """Whether a property of this name holds what another one is derived from."""
    return not EVIDENCE.isdisjoint(words(name))


def is_answer(name: str) -> bool:
    """Whether a property of this name holds a decision."""
    return not ANSWER.isdisjoint(words(name)) and not is_evidence(name)


def is_way_out(value: object) -> bool:
    """Whether an enumerated value stands for everything that the others don't name."""
    if value is None:
        return True
    if not isinstance(value, str):
        return False
    parts = words(value)
    return not parts or not OTHER.isdisjoint(parts) or " ".join(parts) in _OTHER_PHRASES


def is_vague(name: str) -> bool:
    """Whether a name says nothing: one letter, or a word such as `data`, also with a number."""
    parts = words(name)
    if not parts:
        return True
    if len(parts) == 1:
        numbered = _NUMBERED.fullmatch(parts[0])
        parts = (numbered.group(1),) if numbered else parts
        return len(parts[0]) == 1 or parts[0] in VAGUE
    return all(part in VAGUE or part.isdecimal() for part in parts)
