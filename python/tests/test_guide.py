"""The programs of the guide's page on Python, and of the package's README."""

import sys
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("numpy")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["docs/guide/python.md", "python/README.md", "README.md"])
def test_the_programs_of_a_page_run(page: str) -> None:
    blocks = (ROOT / page).read_text().split("\n```python\n")[1:]
    assert blocks, "the page has programs"
    # PyTorch is not installed here, and its options can be set once in a process: only our side of its programs is checked.
    torch = mock.MagicMock(name="torch")
    programs = [block.split("\n```")[0] for block in blocks]
    for number, program in enumerate(programs):
        program = program.replace("use(maximum=40 << 30)", "use()")
        with mock.patch.dict(sys.modules, {"torch": torch}):
            exec(compile(program, f"{page}, program {number}", "exec"), {})
    assert torch.cuda.memory.change_current_allocator.called == ("cuda_mem.torch" in "".join(programs))
