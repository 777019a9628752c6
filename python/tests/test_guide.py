"""The programs of the guide, of README, and of the package's README.

CuPy, Numba, RMM and PyTorch need kernels, which the software GPU lacks: stand-ins take their calls, so only our side of such programs is
checked. ffi-tests/benches/peers/python_libraries.py and tests/gpu run both sides on a GPU.
"""

import json
import sys
from pathlib import Path
from unittest import mock

import pytest

np = pytest.importorskip("numpy")
ROOT = Path(__file__).resolve().parents[2]


def programs_of(page: Path) -> list[str]:
    return [block.split("\n```")[0] for block in page.read_text().split("\n```python\n")[1:]]


PAGES = [page for page in [*sorted((ROOT / "docs/guide").glob("*.md")), ROOT / "README.md", ROOT / "python/README.md"] if programs_of(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_programs_of_a_page_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fakes = {name: mock.MagicMock(name=name) for name in ("cupy", "numba", "rmm", "torch")}
    # What the page about views gets from the Rust side.
    owner = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    said = {name: owner.__array_interface__[name] for name in ("shape", "typestr", "data", "version")}
    given = {"text": json.dumps(said), "owner": owner}
    programs = programs_of(page)
    for number, program in enumerate(programs):
        # The options can be set once in a process.
        program = program.replace("use(maximum=40 << 30)", "use()")
        with mock.patch.dict(sys.modules, fakes):
            exec(compile(program, f"{page}, program {number}", "exec"), given)
    used = fakes["torch"].cuda.memory.change_current_allocator.called
    assert used == ("cuda_mem.torch.use" in "".join(programs))
    assert page.name != "views.md" or capsys.readouterr().out == "2.0\n"


def test_all_pages_with_programs_are_found() -> None:
    assert {page.name for page in PAGES} >= {"README.md", "python.md", "pytorch.md", "other-libraries.md", "views.md"}
