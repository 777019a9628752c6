"""The module of pickles, under upstream's name."""

import sys

from .. import _ipc

sys.modules[__name__] = _ipc
