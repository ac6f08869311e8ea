"""The example of docs/ledger.md prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()


def test_the_example_prints_what_is_written():
    code, said = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/ledger.md", "exec"), {})
    assert printed.getvalue() == said
