"""`cuda_mem.arrow` without the packages that it needs. With them, arrow/tests test it."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(("missing", "package"), [("cuda_mem_arrow", "cuda-mem-arrow"), ("pyarrow", "pyarrow")])
def test_an_import_names_the_package_that_is_missing(missing: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        """Finds a cuda_mem_arrow that lacks a package."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "cuda_mem_arrow":
                raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    for name in ("cuda_mem.arrow", "cuda_mem_arrow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=rf"cuda_mem\.arrow needs the package {package}: pip install 'cuda-mem\[arrow\]'") as error:
        importlib.import_module("cuda_mem.arrow")
    assert error.value.name == missing
