"""Finding stop strings in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Holds back text that may become a stop string, and nothing else.

    The match that ends first wins; of several that end together, the longest. This depends on the
    text alone, not on how it was cut into pieces. Time is linear in the text for each stop string
    (Knuth, Morris and Pratt's automaton).

    Args:
        stops: non-empty strings; may be an empty sequence.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._automata = [_Automaton(stop) for stop in sorted(set(stops), key=len, reverse=True)]
        self._held = ""
        self._matched: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """Take more text.

        Returns:
            What may be shown now, and the stop string that was met (None: none yet). After a match
            nothing more is ever shown, and every call returns that match.
        """
        if not self._automata:
            return text, None
        if self._matched is not None:
            return "", self._matched
        seen = self._held + text
        for end, char in enumerate(text, start=len(self._held) + 1):
            for automaton in self._automata:
                if automaton.step(char) and self._matched is None:  # the longest comes first
                    self._matched = automaton.stop
            if self._matched is not None:
                self._held = ""
                return seen[: end - len(self._matched)], self._matched
        held = max(automaton.state for automaton in self._automata)
        self._held = seen[len(seen) - held :]
        return seen[: len(seen) - held], None

    def flush(self) -> str:
        """What was held back, once no more text will come."""
        held, self._held = self._held, ""
        return held


class _Automaton:
    """How much of one stop string the text ends with."""

    __slots__ = ("_fallback", "state", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        # fallback[n]: the longest proper prefix of stop[:n] that is also its suffix
        self._fallback = [0, 0]
        for char in stop[1:]:
            length = self._fallback[-1]
            while length and stop[length] != char:
                length = self._fallback[length]
            self._fallback.append(length + (stop[length] == char))

    def step(self, char: str) -> bool:
        """Advance by one character; returns whether the stop string is complete."""
        state = self.state
        while state and self.stop[state] != char:
            state = self._fallback[state]
        self.state = state + (self.stop[state] == char)
        return self.state == len(self.stop)
