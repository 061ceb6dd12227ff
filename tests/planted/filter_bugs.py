"""Bugs of filters: of the language, of the answers for many messages, and of a change of the filter."""

from __future__ import annotations

from .plant import Bug

FOLDER = "tests/store/filters"
ANSWERS, TEXTS, WRONG = f"{FOLDER}/test_answers.py", f"{FOLDER}/test_texts.py", f"{FOLDER}/test_wrong.py"
CHANGED = "tests/store/subscriptions/test_changed_filter.py"

FILTERS: dict[str, Bug] = {
    "filters: unknown counts as false under NOT": Bug(
        "store/filters/conditions.py",
        "        found = inner(values)\n        return None if found is None else not found\n",
        "        found = inner(values)\n        return not found\n",
        (ANSWERS,),
    ),
    "filters: AND of unknown and false is unknown": Bug(
        "store/filters/conditions.py",
        "            if found is decides:\n",
        "            if found is decides and not is_unknown:\n",
        (ANSWERS,),
    ),
    "filters: OR binds as AND does": Bug(
        "store/filters/parser.py",
        "            parts.append(_truth(self._both()))\n",
        "            parts.append(_truth(self._negation()))\n",
        (ANSWERS,),
    ),
    "filters: BETWEEN leaves out its upper end": Bug(
        "store/filters/parser.py",
        'compared(ORDERS["<="], number, most)',
        'compared(ORDERS["<"], number, most)',
        (ANSWERS,),
    ),
    "filters: numbers are rounded": Bug(
        "store/filters/conditions.py",
        "    return Decimal(text)\n",
        "    return Decimal(float(text))\n",
        (ANSWERS,),
    ),
    "filters: a text of blanks and digits is a number": Bug(
        "store/filters/conditions.py",
        "not _NUMBER.fullmatch(text)",
        "not _NUMBER.fullmatch(text.strip())",
        (ANSWERS,),
    ),
    "filters: a name in quotes may be a reserved one": Bug(
        "store/filters/parser.py",
        'if token.kind == "name" else token.value\n',
        "if token.kind else token.value\n",
        (ANSWERS,),
    ),
    "filters: a doubled quote stays two": Bug(
        "store/filters/tokens.py",
        "value[1:-1].replace(quote * 2, quote)",
        "value[1:-1]",
        (ANSWERS,),
    ),
    "filters: the place of an error counts from 0": Bug(
        "store/filters/tokens.py",
        "error.position, error.expected = at + 1, expected",
        "error.position, error.expected = at, expected",
        (WRONG,),
    ),
    "filters: brackets may be as deep as they are": Bug(
        "store/filters/parser.py",
        "        if self._depth > MOST_DEPTH:\n",
        "        if self._depth > 100 * MOST_DEPTH:\n",
        (WRONG,),
    ),
    "filters: a text is one that has its hash": Bug(
        "store/filters/texts.py",
        "        if self._are_all(found, lengths, words):\n",
        "        if found.all():\n",
        (TEXTS,),
    ),
    "filters: texts with the same hash are one": Bug(
        "store/filters/texts.py",
        "        others = np.flatnonzero(~self._are(found, lengths, words))",
        "        others = np.flatnonzero(~self._are(found, lengths, words))[:0]",
        (TEXTS,),
    ),
    "filters: zeros after a text are no part of it": Bug(
        "store/filters/texts.py",
        "        same: Bools = self._lengths.take(numbers) == lengths\n",
        "        same: Bools = self._lengths.take(numbers) >= 0\n",
        (TEXTS,),
    ),
    "filters: the byte after a text counts": Bug(
        "store/filters/texts.py",
        "        words[:, -1] &= _TAILS.take(lengths & 7)\n",
        "",
        (TEXTS,),
    ),
    "filters: texts are never forgotten": Bug(
        "store/filters/texts.py",
        "return len(self.texts) > MOST_TEXTS or",
        "return False and",
        (TEXTS,),
    ),
    "filters: answers outlive the texts that they were given for": Bug(
        "store/filters/message_filter.py",
        "        if self._known.is_full:\n            self._known = _Remembered()\n",
        "        if self._known.is_full:\n            answers, self._known = self._known.answers, _Remembered()\n"
        "            self._known.answers = answers\n",
        (TEXTS,),
    ),
    "filters: a message without the property is taken": Bug(
        "store/filters/conditions.py",
        "        return None if text is None else text in known\n",
        "        return text is None or text in known\n",
        ("tests/store/subscriptions/test_modes.py::test_odd_properties_are_matched_as_json_says",),
    ),
    "filters: properties that are no object are as none": Bug(
        "store/filters/message_filter.py",
        "        if not isinstance(found, dict):\n            return None\n",
        "        if not isinstance(found, dict):\n            return {}\n",
        (ANSWERS,),
    ),
    "filters: what was read ahead goes by the old filter": Bug(
        "store/subscriptions/dispatcher.py",
        "        self._has_missed |= known is None or known.filter != settings.filter",
        "        self._has_missed |= known is None",
        (CHANGED,),
    ),
    "filters: a recovery keeps the old filter": Bug(
        "store/subscriptions/scanner.py",
        "        if queue_ids is None:\n            self._follow_settings()\n",
        "        if queue_ids is None:\n",
        (CHANGED,),
    ),
    "filters: what the old filter left out is not in the log before the change": Bug(
        "store/subscriptions/state.py",
        "            if left_out:  #",
        "            if False and left_out:  #",
        (CHANGED,),
    ),
    "filters: a change without a filter takes the filter away": Bug(
        "store/subscriptions/settings.py",
        "self.filter if filter_ is ... else",
        "None if filter_ is ... else",
        (CHANGED,),
    ),
    "filters: a scan gives batches that are empty": Bug(
        "store/subscriptions/delivery.py",
        "        if mask.any():\n            yield",
        "        if True:\n            yield",
        ("tests/store/test_scan_filter.py",),
    ),
}
