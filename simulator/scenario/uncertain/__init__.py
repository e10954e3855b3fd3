"""How far an answer may be off: what is drawn (``draws``), what moves it (``doubts``, ``devices``,
``acceptance``), how far away it is from what was measured (``homes``), and which answers follow
(``intervals``, ``footings``).
"""
