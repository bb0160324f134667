"""Counts of a text, and how easily it reads."""

import re
from collections import Counter
from dataclasses import dataclass

from toolhost import ToolError

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)")
VOWELS = re.compile(r"[aeiouyàâäéèêëîïôöùûü]+")
COMMON = frozenset(
    "a about after all also an and any are as at be been but by can could did do does for from had has have he her him his how i if in into is it its "
    "just me more my no not of on one or our out over she so some than that the their them then there these they this to up us was we were what when "
    "which who will with would you your".split()
)


@dataclass
class Frequency:
    word: str
    count: int


@dataclass
class Statistics:
    characters: int
    words: int
    unique_words: int
    sentences: int
    paragraphs: int
    words_per_sentence: float
    characters_per_word: float
    frequencies: list[Frequency]
    flesch_reading_ease: float
    flesch_kincaid_grade: float


def measure(source, top, common):
    """Measures a text line by line."""
    counts, characters, letters, sentences, paragraphs = Counter(), 0, 0, 0, 0
    open_sentence = open_paragraph = False
    for line in source.lines():
        characters += len(line)
        words = WORD.findall(line)
        letters += sum(map(len, words))
        counts.update(word.casefold() for word in words)

        ends = len(END.findall(line))
        if not line.strip():  # an empty line ends what has begun
            sentences += open_sentence
            open_sentence = open_paragraph = False
        elif words and not open_paragraph:
            paragraphs += 1
            open_paragraph = True
        sentences += ends
        if words:
            open_sentence = not END.search(line) or bool(WORD.search(END.split(line)[-1]))
    sentences = max(1, sentences + open_sentence)

    total = counts.total()
    if not total:
        raise ToolError("the text has no words")
    per_sentence = total / sentences
    syllables = sum(n * syllables_of(word) for word, n in counts.items()) / total
    frequent = Counter({w: n for w, n in counts.items() if common or w not in COMMON}).most_common(top)
    return Statistics(
        characters=characters,
        words=total,
        unique_words=len(counts),
        sentences=sentences,
        paragraphs=paragraphs,
        words_per_sentence=round(per_sentence, 1),
        characters_per_word=round(letters / total, 1),
        frequencies=[Frequency(w, n) for w, n in frequent],
        flesch_reading_ease=round(206.835 - 1.015 * per_sentence - 84.6 * syllables, 1),
        flesch_kincaid_grade=round(0.39 * per_sentence + 11.8 * syllables - 15.59, 1),
    )


def syllables_of(word):
    """How many syllables an English word has, by its groups of vowels."""
    n = len(VOWELS.findall(word))
    if word.endswith("e") and not word.endswith(("le", "ee")) and n > 1:
        n -= 1
    return max(1, n)
