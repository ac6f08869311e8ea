"""Records -> JSON -> HTML and terminal text. Any stored run renders again, offline, without the code that made it.

- ``data``: the public JSON documents and their JSON Schemas.
- ``units``: numbers with units as text, the only place where SI is scaled.
- ``words``: a run and a diagnosis in sentences, shared by page and terminal.
- ``svg``: elements, scales and axes for charts.
- ``frontier``, ``roofline``, ``terms``, ``predictions``: one chart each.
- ``marks``: how a trial looks in every chart.
- ``tables``, ``facts``: rows, names and values of the page as text.
- ``html``: the page that holds them (``page.html``, ``page.css``, ``page.js``).
- ``terminal``: tables for the command line; ``elsewhere``: of a diagnosis carried to another machine.
"""
