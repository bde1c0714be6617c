"""Results for a person: one sentence, a terminal summary, a self-contained HTML page.

May import ``diff`` and what stands below it. ``words`` makes the sentences that both forms share;
``terminal`` prints (rich only where the stream is a terminal); ``html`` writes the page. JSON is
``ReplayResult.to_json()``.
"""
