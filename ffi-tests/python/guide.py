"""Runs the programs of a page of the guide, one after another in one process: guide.py PAGE INTERFACE.

INTERFACE is the array interface of six numbers, as JSON of the Rust library; the memory is this process's. CuPy, RMM and
PyTorch need the CUDA runtime, which softgpu lacks. Stand-ins take their calls, so only our side of such programs is checked;
ffi-tests/benches/peers/python_libraries.py runs both sides on a GPU.

The status is 3 if a module is missing; the last line then names it.
"""

import ctypes
import json
import sys
from unittest import mock

page, interface = sys.argv[1:]
for name in ("cupy", "rmm", "torch"):
    sys.modules[name] = mock.MagicMock(name=name)
sys.modules["cupy.cuda"] = sys.modules["cupy"].cuda

owner = (ctypes.c_float * 6)(1, 2, 3, 4, 5, 6)
said = json.loads(interface)
said["data"][0] = ctypes.addressof(owner)
given = {"text": json.dumps(said), "owner": owner}

with open(page, encoding="utf-8") as file:
    blocks = file.read().split("\n```python\n")[1:]
for number, block in enumerate(blocks):
    program = block.split("\n```")[0]
    print(f"program {number} of {page}", flush=True)
    try:
        exec(compile(program, f"{page}, program {number}", "exec"), given)
    except ModuleNotFoundError as error:
        print(error.name)
        sys.exit(3)
